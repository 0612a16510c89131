package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) killCommand() *cobra.Command {
	var reason string
	var f killFlags
	grace := days(hub.DefaultGrace)
	c := &cobra.Command{
		Use: "kill ID...", Short: "End agents and their whole process trees", Args: cobra.ArbitraryArgs,
		Long: `End agents and their whole process trees: TERM, the grace, then KILL.

The order overtakes queues, is stored before this returns, and is obeyed by a
spoke that is offline when it is back. See what was reaped with: spawnmesh status ID

The exit code is 4 when one of them had ended already.

On a hub, --spoke and -l select open agents in place of ids, with both those that
both select; --all takes every one. Agents whose end is ordered already are left
alone. The command shows how many there are on which spokes, and asks; where nobody
can be asked it wants --yes. Agents that came after those are left alone, and those
that ended meanwhile are counted. The exit code is the highest of those that were
refused, and 0 where there is nothing to kill.

On a spoke, --all takes every agent of this host, whichever hub ordered it. On a hub
that is another hub's spoke it takes those that this hub ordered, and says how many
others run here; kill those by their ids.

An agent that the hub has ended by itself and that its spoke has started all the same
(status: "ended here unheard; it runs on SPOKE") is not open, and --spoke, -l and
--all leave it out: kill those by their ids.

` + selectorHelp,
		Example: "  spawnmesh kill k7f3m2qp --reason 'wrong branch' --grace 30s\n  spawnmesh kill -l app=web,tier!=db --reason 'bad release'\n  spawnmesh kill --spoke attic -l '!keep' --reason 'the host is needed' --yes",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			if strings.TrimSpace(reason) == "" {
				return misuse("a kill needs a reason").Hinting("add --reason \"why\"; it is recorded")
			}
			terms := commands.Kill{Reason: reason, GraceMS: time.Duration(grace).Milliseconds()}
			if err := terms.ValidateTerms(); err != nil {
				return err
			}
			if f.selects() {
				return a.killSelected(c.Context(), f, reason, time.Duration(grace))
			}
			return a.kill(c.Context(), args, reason, time.Duration(grace))
		},
	}
	c.Flags().StringVar(&f.spoke, "spoke", "", "those on the spoke `NAME`")
	c.Flags().StringArrayVarP(&f.labels, "selector", "l", nil, "those with labels as `SELECTOR` says (repeatable)")
	c.Flags().BoolVar(&f.all, "all", false, "all of them")
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask whether it is meant")
	c.Flags().StringVar(&reason, "reason", "", "record `WHY` (required)")
	c.Flags().Var(&grace, "grace", "time between TERM and KILL, at most 10m")
	return c
}

// kill orders the end of each agent.
func (a *app) kill(ctx context.Context, ids []string, reason string, grace time.Duration) error {
	return a.endEach(ctx, ids, "kill", func(c *control.Client, id string) (hub.Killed, error) { return orderKill(ctx, c, id, reason, grace) })
}

// endEach orders the end of each agent: what is wrong with one does not spare the
// others. The exit code is that of the first problem. A kill that comes too late is one, a cancel is not.
func (a *app) endEach(ctx context.Context, ids []string, word string, order func(*control.Client, string) (hub.Killed, error)) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var list []hub.Killed
	var names, shorts []string
	var failed error
	note := func(code int) {
		if failed == nil {
			failed = exitCode(code)
		}
	}
	for _, id := range ids {
		m, err := order(c, id)
		if err == nil && m.Task == "" {
			err = namesNoAgent(word)
		}
		if err != nil {
			note(a.printError(err))
			continue
		}
		list, names = append(list, m), append(names, m.Task)
		shorts = append(shorts, commands.ShortID(m.Task))
		a.did("the %s of %s is ordered; see: %s", word, strings.Join(shorts, ", "), a.line("status", commands.ShortID(m.Task)))
		if r := endedBefore(m); r != nil && word == "kill" {
			note(a.printError(r))
		} else if r != nil && a.forPeople() {
			fmt.Fprintln(a.out, r.Why)
		} else if a.forPeople() {
			fmt.Fprintf(a.out, "the %s of agent %s is ordered\n", word, commands.ShortID(m.Task))
			if word == "resume" {
				a.sayWhosePause(m)
			}
		}
	}
	if !a.forPeople() {
		if err := printList(a, list, table{names: names}); err != nil {
			return err
		}
	}
	return failed
}

// sayWhosePause says of an agent that was ordered to go on that somebody else had paused it, or that nobody had.
func (a *app) sayWhosePause(m hub.Killed) {
	if whose := overruled(m); whose != "" {
		fmt.Fprintf(a.err, "note: agent %s %s\n", commands.ShortID(m.Task), printable(whose))
	}
}

// overruled is whose pause of an agent a resume has ended, where it was not of the side that was asked: of two words the newer one
// counts. "" where there is nothing to say.
func overruled(m hub.Killed) string {
	var p store.OrderedPause
	_ = json.Unmarshal(m.Pause, &p) // our own hub or spoke wrote it; nil = none
	paused := p.Before != nil && p.Before.Paused
	switch {
	case m.Hub != "" && paused && p.Before.By == m.Hub:
		return "had been paused by its hub " + strings.TrimSuffix(m.Hub+": "+p.Before.Reason, ": ") + "; the newest word counts, so it goes on"
	case !paused && m.State == commands.Running:
		return "is running, and no pause of it is known here"
	case m.Hub == "" && !paused && m.State == commands.Paused:
		return "had been paused by its host, or by this hub before it was restored from a backup; the newest word counts, so it goes on"
	}
	return ""
}

// endedBefore says that a kill came too late. One that was ordered did not, also where its agent
// has ended before the answer was made; a spoke answers with the agent as the kill found it.
func endedBefore(m hub.Killed) *commands.Refused {
	if m.Ordered || !m.State.Terminal() {
		return nil
	}
	return commands.Refuse(commands.Conflict, "agent %s has ended already: %s", commands.ShortID(m.Task), m.State)
}

func orderKill(ctx context.Context, c *control.Client, id, reason string, grace time.Duration) (m hub.Killed, err error) {
	m, err = control.Read[hub.Killed](c.API().KillTask(ctx, id, api.KillRequest{Reason: reason, GraceMS: grace.Milliseconds()}))
	if err == nil && m.Task == "" {
		err = namesNoAgent("kill")
	}
	return m, err
}

// namesNoAgent is an answer of something that is no instance: nothing is known to have been done.
func namesNoAgent(what string) error {
	return commands.Refuse(commands.Internal, "the answer to the %s names no agent, so it is not known to be ordered", what).Hinting("is it a hub that was asked? look at the --url of the context")
}
