package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A backlogVerb is a command that moves one task on.
type backlogVerb struct {
	name, short, long string
	worker            bool   // a worker may say it, with a fence
	because           string // an example of the reason that the operator has to give
	outcome           bool   // it may carry a result and what was used
	delay             bool
	say               func(ctx context.Context, c *api.ClientWithResponses, workspace string, f actFlags) (api.BacklogTask, error)
}

var backlogVerbs = []backlogVerb{
	{name: "complete", short: "Say that a task is done", worker: true, outcome: true, say: sayComplete,
		long: "With --fence it is its worker's word, else yours: any task that has not ended can\nbe completed. Tasks that depend on it become ready."},
	{name: "fail", short: "Say that a task could not be done", worker: true, because: "the disk is full", outcome: true, say: sayFail,
		long: "With --fence it is its worker's word, and the task is tried again while its\nretries last. Without one it is yours, and final."},
	{name: "release", short: "Give a claimed task back", worker: true, delay: true, say: sayRelease,
		long: "It is ready for the next claimer; no retry is spent."},
	{name: "block", short: "Keep a task from being claimed until it is unblocked", worker: true, say: sayBlock,
		long: "A claim that somebody has on it ends."},
	{name: "unblock", short: "Let a blocked task be claimed again", say: sayUnblock},
	{name: "pause", short: "Keep a task that waits from being claimed until it is resumed", because: "after the release", say: sayPause,
		long: "A task that somebody has claimed is not paused."},
	{name: "resume", short: "Let a paused task be claimed again", say: sayResume},
	{name: "cancel", short: "End a task that is no longer wanted", because: "not needed any more", say: sayCancel,
		long: "A claim that somebody has on it ends. What depends on it follows its own\n--on-failed-dependency."},
	{name: "retry", short: "Queue a task again that ended without success", delay: true, say: sayRetry},
}

// actFlags are what somebody says with a verb.
type actFlags struct {
	id, fence, reason, result string
	usage                     quantities
	delay                     days

	task string // that is meant
	left api.JSON
}

func (f actFlags) outcome() api.BacklogOutcome {
	return api.BacklogOutcome{Fence: f.fence, Reason: f.reason, Result: f.left, Usage: f.usage.asked()}
}

func (f actFlags) delayed() int64 { return time.Duration(f.delay).Milliseconds() }

func (a *app) backlogVerbCommand(v backlogVerb) *cobra.Command {
	var f actFlags
	c := &cobra.Command{
		Use: v.name + " [ID]", Short: v.short, Args: cobra.MaximumNArgs(1),
		Example: "  spawnmesh backlog " + v.name + " --id A1",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.complete(c, a, v, args); err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				t, err := v.say(ctx, c.API(), a.workspace, f)
				if err != nil {
					return err
				}
				return a.sayTask(taskFrom(t))
			})
		},
	}
	if v.long != "" {
		c.Long = v.short + ".\n\n" + v.long
	}
	if v.because != "" {
		c.Example += " --reason '" + v.because + "'"
	}
	fl := c.Flags()
	fl.StringVar(&f.id, "id", "", "the task `ID`; the same as without --id")
	fl.StringVar(&f.reason, "reason", "", v.reasonUsage())
	if v.worker {
		fl.StringVar(&f.fence, "fence", "", "as its worker: the `FENCE` that claim has printed")
		c.Example += "\n  spawnmesh backlog " + v.name + " --fence FENCE"
	}
	if v.outcome {
		fl.StringVar(&f.result, "result", "", "keep this `JSON` with the task, or that in @FILE")
		fl.Var(&f.usage, "usage", "what the whole try has used (repeatable)")
	}
	if v.delay {
		fl.Var(&f.delay, "delay", "not ready before this is over")
	}
	return c
}

// reasonUsage says who has to give a reason: an operator whose word ends the task or keeps it.
func (v backlogVerb) reasonUsage() string {
	switch {
	case v.because == "":
		return "record `WHY`"
	case v.worker:
		return "record `WHY` (required without --fence)"
	}
	return "record `WHY` (required)"
}

// complete reads what the flags say together.
func (f *actFlags) complete(c *cobra.Command, a *app, v backlogVerb, args []string) (err error) {
	if f.task, err = oneName(c, "id", f.id, args); err != nil {
		return err
	}
	switch {
	case f.fence != "":
		fence, err := backlog.ParseFence(f.fence)
		if err != nil {
			return err
		}
		f.task = cmp.Or(f.task, fence.Task)
	case f.task == "" && v.worker:
		return misuse("backlog %s names no task", v.name).Hinting("as its worker: --fence FENCE, as claim has printed it; as its operator: --id ID")
	case f.task == "":
		return misuse("backlog %s names no task", v.name).Hinting("give its key or id: %s ID", c.CommandPath())
	}
	f.left, err = a.resultFrom(c.Context(), f.result)
	return err
}

// resultFrom reads JSON from the command line, or from a file that it names.
func (a *app) resultFrom(ctx context.Context, text string) (left api.JSON, err error) {
	if text == "" {
		return nil, nil
	}
	if path, ok := strings.CutPrefix(text, "@"); ok {
		text, err = a.readNamed(ctx, source{what: "--result", path: path, most: backlog.MaxBody, larger: "keep what is larger elsewhere, and point to it"})
		if err != nil {
			return nil, err
		}
	}
	if !json.Valid([]byte(text)) {
		return nil, misuse("--result is not JSON").Hinting(`a plain text is JSON in quotes: --result '"it works"'`)
	}
	return api.JSON(text), nil
}

// sayTask shows how a task stands after something was done to it.
func (a *app) sayTask(t backlog.Task) error {
	a.did("%s %s; see: %s", t.Name(), standing(t), a.line("backlog", "show", t.Name()))
	if a.forPeople() {
		_, err := fmt.Fprintf(a.out, "%s %s\n", printable(t.Name()), printable(standing(t)))
		return err
	}
	return a.print(t, []any{t}, table{names: []string{t.Ref()}})
}

func (a *app) backlogReclaimCommand() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use: "reclaim [ID]", Short: "Take back claims that have run out, or one that has not", Args: cobra.MaximumNArgs(1),
		Long: `Take back claims that have run out: their tasks are ready again. With ID that claim
is taken back whether it has run out or not, and its worker's fence is void.`,
		Example: "  spawnmesh backlog reclaim --json\n  spawnmesh backlog reclaim --id A1",
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := oneName(c, "id", id, args)
			if err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, err := a.reclaim(ctx, c.API(), ref)
				if err != nil {
					return err
				}
				return a.sayReclaimed(each(list.Items, taskFrom))
			})
		},
	}
	c.Flags().StringVar(&id, "id", "", "the task `ID`, also when its claim has not run out")
	return c
}

func (a *app) reclaim(ctx context.Context, c *api.ClientWithResponses, ref string) (api.BacklogTaskList, error) {
	if ref == "" {
		return control.Answer(c.ReclaimBacklogTasksWithResponse(ctx, a.workspace))
	}
	return control.Answer(c.ReclaimBacklogTaskWithResponse(ctx, a.workspace, ref))
}

func (a *app) sayReclaimed(list []backlog.Task) error {
	if !a.forPeople() {
		var names []string
		for _, t := range list {
			names = append(names, t.Ref())
		}
		return printList(a, list, table{names: names})
	}
	for _, t := range list {
		if err := a.sayTask(t); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		fmt.Fprintln(a.err, "no claim has run out")
	}
	return nil
}
