package acp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

// What becomes of a tool that an agent wants to use.
type verdict string

const (
	allow verdict = "allow"
	deny  verdict = "deny"
	ask   verdict = "ask"
)

// anyKind stands for all kinds that are not named.
const anyKind = "*"

// Rules say which kinds of tools an agent may use: those allowed, those denied, and those that a person is asked for, as all that is not named.
type Rules struct{ Allow, Deny, Ask []string }

// Check refuses kinds that there are not.
func (r Rules) Check() error {
	for _, kind := range slices.Concat(r.Allow, r.Deny, r.Ask) {
		if kind != anyKind && !slices.Contains(wire.Kinds, wire.ToolKind(kind)) {
			var names []string
			for _, k := range wire.Kinds {
				names = append(names, string(k))
			}
			return commands.Refuse(commands.Validation, "%q is no kind of tool", commands.Clip(kind)).Hinting("kinds are %s and %s", strings.Join(names, ", "), anyKind)
		}
	}
	return nil
}

// of is what becomes of a kind. One that is named counts before *, and the stricter rule before the other.
func (r Rules) of(kind wire.ToolKind) verdict {
	if !slices.Contains(wire.Kinds, kind) {
		kind = wire.ToolKindOther // the protocol may have more one day
	}
	for _, name := range []string{string(kind), anyKind} {
		switch {
		case slices.Contains(r.Deny, name):
			return deny
		case slices.Contains(r.Ask, name):
			return ask
		case slices.Contains(r.Allow, name):
			return allow
		}
	}
	return ask
}

// denied says that a kind of tool is not allowed, also where the agent did not ask first.
func (r Rules) denied(kind wire.ToolKind) error {
	if r.of(kind) == deny {
		return fmt.Errorf("this host does not allow tools of the kind %s", kind)
	}
	return nil
}

// pick returns the first option of one of the kinds; nil = there is none.
func pick(options []wire.PermissionOption, of ...wire.PermissionOptionKind) *wire.PermissionOption {
	for _, kind := range of {
		for i := range options {
			if options[i].Kind == kind {
				return &options[i]
			}
		}
	}
	return nil
}

// allowing and refusing are the options for what the rules say: for this time, if there is such a one.
func allowing(options []wire.PermissionOption) *wire.PermissionOption {
	return pick(options, wire.PermissionOptionKindAllowOnce, wire.PermissionOptionKindAllowAlways)
}

func refusing(options []wire.PermissionOption) *wire.PermissionOption {
	return pick(options, wire.PermissionOptionKindRejectOnce, wire.PermissionOptionKindRejectAlways)
}

// outcome is the answer with an option; without one it is that nobody has chosen.
func outcome(o *wire.PermissionOption) wire.RequestPermissionResponse {
	if o == nil {
		return wire.RequestPermissionResponse{Outcome: wire.RequestPermissionOutcome{Outcome: "cancelled"}}
	}
	return wire.RequestPermissionResponse{Outcome: wire.RequestPermissionOutcome{Outcome: "selected", OptionID: o.OptionID}}
}
