package hub

import (
	"encoding/json"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Brief is an agent as it stands, without what it was given and wrote, and without the words of who refused, ended or paused it.
// What was ordered and what came of it stay: nil is read as "there was none".
func (v AgentView) Brief() AgentView {
	v.Spec = nil
	v.Refusals, v.Attempts = slices.Clone(v.Refusals), slices.Clone(v.Attempts)
	for i := range v.Refusals {
		v.Refusals[i].Why, v.Refusals[i].Hint = "", ""
	}
	for i := range v.Attempts {
		v.Attempts[i].Exit = briefExit(v.Attempts[i].Exit)
	}
	if v.Refusal != nil {
		v.Refusal = json.RawMessage(`{}`)
	}
	v.Result = rewritten(v.Result, briefResult)
	v.Kill, v.RefusedKill = rewritten(v.Kill, briefKill), rewritten(v.RefusedKill, briefKill)
	v.Pause = rewritten(v.Pause, briefPause)
	return v
}

// rewritten is raw with its value changed; nil where there is none, or it cannot be read.
func rewritten[T any](raw json.RawMessage, change func(T) T) json.RawMessage {
	var v T
	if raw == nil || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	out, _ := json.Marshal(change(v)) // it was JSON
	return out
}

// briefExit is how a process ended, without texts of its host.
func briefExit(x commands.Exit) commands.Exit {
	return commands.Exit{Code: x.Code, Signal: x.Signal, Breach: x.Breach}
}

// briefResult has no more of a result than is named here, and a sentence of that alone.
func briefResult(r commands.Result) commands.Result {
	r = commands.Result{Task: r.Task, State: r.State, Reason: r.Reason, Attempt: r.Attempt, Outcome: r.Outcome, Exit: briefExit(r.Exit), Kill: r.Kill, StartedAt: r.StartedAt, EndedAt: r.EndedAt}
	r.Summary = r.Sentence()
	return r
}

func briefKill(k store.OrderedKill) store.OrderedKill {
	k.Reason, k.Why = "", ""
	return k
}

func briefPause(p store.OrderedPause) store.OrderedPause {
	p.Reason, p.Why = "", ""
	if p.Before != nil {
		before := briefPause(*p.Before)
		p.Before = &before
	}
	return p
}
