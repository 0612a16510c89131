package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// agentFlags narrow a list of agents.
type agentFlags struct {
	spoke, hub     string
	open, archived bool
	labels, states []string
	since          moment
	limit          int
}

// failedOf begins the word for an agent that failed, as "failed: exit 4".
const failedOf = string(commands.Failed) + ": "

// in reports whether an agent is in one of these states, or is said to be in one of these words.
func in(states []string, v agentView) bool {
	return slices.Contains(states, string(v.State)) || slices.Contains(states, v.Words())
}

const selectorHelp = `A selector of labels is one or more terms, with commas between, which all have to
hold: NAME=VALUE, NAME!=VALUE (also where there is no NAME), NAME (there is one)
and !NAME (there is none).`

// selector is what all selectors that were given ask for.
func selector(given []string) (string, error) {
	text := strings.Join(given, ",")
	_, err := commands.ParseSelector(text)
	if err == nil && len(given) > 0 && strings.TrimSpace(text) == "" {
		err = misuse("-l is empty; write NAME=VALUE, NAME!=VALUE, NAME or !NAME")
	}
	return text, err
}

func (f agentFlags) check() error {
	for _, s := range f.states {
		if !slices.Contains(commands.States, commands.State(s)) && !slices.Contains(hub.EndWords(), s) && !strings.HasPrefix(s, failedOf) {
			return misuse("%q is not a state of an agent", s).Hinting("the states are: %s; or a word of the list: %s", statesText(), strings.Join(hub.EndWords(), ", "))
		}
	}
	if f.open && f.archived {
		return misuse("--open and --archived are both given, and what is archived has ended").Hinting("give one of them")
	}
	if f.limit < 1 {
		return misuse("--limit is 1 or more")
	}
	_, err := selector(f.labels)
	return err
}

// narrow reports whether some agents are left out.
func (f agentFlags) narrow() bool {
	return f.open || f.archived || f.spoke != "" || f.hub != "" || len(f.labels) > 0 || len(f.states) > 0 || f.since.text != ""
}

// list asks for pages until it has as many as it may have, and reports whether there are more.
func (f agentFlags) list(ctx context.Context, c *control.Client) (list []agentView, more bool, err error) {
	labels, err := selector(f.labels)
	if err != nil {
		return nil, false, err
	}
	q := api.ListTasksParams{Spoke: f.spoke, Hub: f.hub, Open: f.open, Archived: f.archived, Labels: labels}
	return paged(f.limit, len(f.states) > 0, func(cursor string, most int) (found control.Items[agentView], err error) {
		q.Cursor, q.Limit = cursor, &most
		if found, err = control.Read[control.Items[agentView]](c.API().ListTasks(ctx, &q)); err != nil {
			return found, err
		}
		n := len(found.Items)
		found.Items = slices.DeleteFunc(found.Items, func(v agentView) bool { return v.CreatedAt.Before(f.since.at) })
		if n > 0 && len(found.Items) == 0 { // what comes next is older
			found.Next = ""
		}
		found.Items = slices.DeleteFunc(found.Items, func(v agentView) bool { return len(f.states) > 0 && !in(f.states, v) })
		return found, nil
	})
}

// pageLength is how much one answer has of a list of which more is asked for.
const pageLength = 1000

// paged collects at most limit things, page by page, and reports whether there are more: it asks for one beyond. Where some of a
// page are left out its length is not what is missing.
func paged[T any](limit int, leavesOut bool, page func(cursor string, most int) (control.Items[T], error)) (list []T, more bool, err error) {
	list = make([]T, 0)
	for cursor := ""; ; {
		most := pageLength
		if !leavesOut && limit-len(list) < pageLength {
			most = limit - len(list) + 1
		}
		got, err := page(cursor, most)
		list = append(list, got.Items...)
		if more = len(list) > limit; more || err != nil || got.Next == "" {
			return list[:min(len(list), limit)], more, err
		}
		cursor = got.Next
	}
}

// sayMore says on standard error that a list does not have all things, and how more are seen.
func (a *app) sayMore(more bool, things, how string) {
	if more {
		fmt.Fprintf(a.err, "there are more %s than these; see more with %s\n", things, how)
	}
}

// onlyArchived says instead of an empty list how many things are archived, and how they are listed.
func (a *app) onlyArchived(things string, n int, more bool, words ...string) string {
	or := ""
	if more {
		or = " or more"
	}
	return fmt.Sprintf("no %s but those that are archived, %d%s; list them: %s", things, n, or, a.line(words...))
}
