package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// creation is what the operator says about a task to be.
type creation struct {
	spec       backlog.TaskSpec
	bodyFile   string
	acceptance []string
	estimate   quantities
	notBefore  string
	backoff    days
}

// A createdTask is a task, and whether an earlier call made it.
type createdTask struct {
	backlog.Task
	Existing bool `json:"existing"`
}

// backoffHelp explains --backoff where something may be tried again.
const backoffHelp = "the first retry waits up to this, the next twice as long, up to 1h (default 30s)"

func (a *app) backlogCreateCommand() *cobra.Command {
	var f creation
	c := &cobra.Command{
		Use: "create", Short: "Create a task", Args: cobra.NoArgs,
		Long: `Create a task. It can be claimed once every task that it depends on is completed.

The key that --id gives is your own name for it. Creating a task again that says
the same finds it; one that says something else is refused.`,
		Example: `  spawnmesh backlog create --id A1 --title schema --priority 5
  spawnmesh backlog create --id A2 --title service --depends-on A1 \
    --acceptance 'make test passes' --estimate usd=0.5
  spawnmesh backlog create --title nightly --not-before 8h --capability gpu`,
		RunE: func(c *cobra.Command, _ []string) error { return a.createTask(c.Context(), f) },
	}
	s, fl := &f.spec, c.Flags()
	fl.StringVar(&s.Key, "id", "", "call it `KEY`, unique in the workspace")
	fl.StringVar(&s.Title, "title", "", "`TEXT` of one line that people see (required)")
	fl.StringVar(&s.Body, "body", "", "`TEXT` for whoever works on it")
	fl.StringVar(&f.bodyFile, "body-file", "", "read the body from `FILE`, - for standard input")
	fl.StringVar(&s.Phase, "phase", "", "`LABEL` such as a milestone or a board's column")
	fl.IntVar(&s.Priority, "priority", 0, "`N` from -100 to 100, higher is sooner")
	fl.StringSliceVar(&s.DependsOn, "depends-on", nil, "not before the task `ID` is completed (repeatable, or ID,ID)")
	fl.StringArrayVar(&f.acceptance, "acceptance", nil, "`CRITERION` for its acceptance (repeatable), or JSON: list or object")
	fl.StringVar(&s.IdempotencyKey, "idempotency-key", "", "a second create with the same `KEY` is the same task")
	fl.StringVar(&s.Lane, "lane", "", "queue it in the lane `NAME` (default: default)")
	fl.StringArrayVar(&s.Capabilities, "capability", nil, "only for claimers that have `NAME` (repeatable)")
	fl.StringVar(&s.Account, "account", "", "`NAME` of the account whose budget pays")
	fl.Var(&f.estimate, "estimate", "reserve this of the budgets for each try (repeatable)")
	fl.StringVar(&f.notBefore, "not-before", "", "not before `WHEN`: a time, or how long from now")
	fl.IntVar(&s.MaxRetries, "max-retries", 0, "try a failed one again, at most `N` times, up to 100")
	fl.Var(&f.backoff, "backoff", backoffHelp)
	fl.StringVar(&s.OnFailedDep, "on-failed-dependency", "", "`WHAT` to do then: hold, cancel or ignore (default: hold)")
	return c
}

func (a *app) createTask(ctx context.Context, f creation) error {
	from, err := a.completeSpec(ctx, &f)
	if err != nil {
		return err
	}
	var got createdTask
	err = a.askingFirst(ctx, func(ctx context.Context, c *control.Client) error {
		made, err := control.Answer(c.API().CreateBacklogTasksWithResponse(ctx, a.workspace, nil, api.NewBacklogTasks{Items: []api.NewBacklogTask{f.asked(from)}}))
		if err == nil {
			got = createdTask{taskFrom(made.Items[0]), *made.Items[0].Existing}
		}
		return err
	})
	if err != nil {
		return err
	}
	a.did("task %s was created; see: %s", got.Name(), a.line("backlog", "show", got.Name()))
	if !a.forPeople() {
		return a.print(got, []any{got}, table{names: []string{got.Ref()}})
	}
	fmt.Fprintln(a.out, printable(got.Name()))
	if got.Existing {
		fmt.Fprintf(a.err, "this task was created before, and %s\n", printable(standing(got.Task)))
	}
	return nil
}

// asked is the task as the API has it, not to start before so long from now, where that is above 0.
func (f *creation) asked(from time.Duration) api.NewBacklogTask {
	s := f.spec
	return api.NewBacklogTask{Key: s.Key, Title: s.Title, Body: s.Body, Phase: s.Phase, Priority: s.Priority, DependsOn: s.DependsOn, Acceptance: api.JSON(s.Acceptance),
		IdempotencyKey: s.IdempotencyKey, Lane: s.Lane, Capabilities: s.Capabilities, Account: s.Account, Estimate: f.estimate.asked(), NotBefore: s.NotBefore,
		DelayMS: from.Milliseconds(), MaxRetries: s.MaxRetries, BackoffMS: s.BackoffMS, OnFailedDependency: s.OnFailedDep}
}

// completeSpec puts what the flags say into the spec and checks it, before a database
// is started for nothing. It is not to start before the time in the spec, or, with
// from above 0, that long from now.
func (a *app) completeSpec(ctx context.Context, f *creation) (from time.Duration, err error) {
	f.spec.Estimate, f.spec.BackoffMS = f.estimate, time.Duration(f.backoff).Milliseconds()
	if f.spec.Acceptance, err = acceptanceOf(f.acceptance); err != nil {
		return 0, err
	}
	if f.bodyFile != "" {
		if f.spec.Body != "" {
			return 0, misuse("--body and --body-file are both given").Hinting("give one of them")
		}
		text, err := a.readNamed(ctx, source{what: "--body-file", path: f.bodyFile, input: f.bodyFile == "-", most: backlog.MaxBody, larger: "keep what is larger elsewhere, and point to it"})
		if err != nil {
			return 0, err
		}
		f.spec.Body = strings.TrimSuffix(text, "\n")
	}
	if f.spec.NotBefore, from, err = momentOf(f.notBefore); err != nil {
		return 0, err
	}
	return from, f.spec.Validate()
}

// acceptanceOf makes a list of plain texts; JSON stays what it is.
func acceptanceOf(list []string) (json.RawMessage, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if text := strings.TrimSpace(list[0]); strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{") {
		if !json.Valid([]byte(text)) || len(list) > 1 {
			return nil, misuse("--acceptance is not a JSON array of strings or a JSON object, once").
				Hinting("a criterion that is no JSON does not begin with [ or {")
		}
		return json.RawMessage(text), nil
	}
	if slices.Contains(list, "") {
		return nil, misuse("--acceptance is empty")
	}
	return json.Marshal(list)
}

// momentOf reads a point in time, or how long from now it is.
func momentOf(text string) (at time.Time, from time.Duration, err error) {
	if text == "" {
		return at, 0, nil
	}
	var d days
	if d.Set(text) == nil {
		return at, time.Duration(d), nil
	}
	for _, form := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return at, 0, nil
		}
	}
	return at, 0, misuse("%q is neither a time such as 2006-01-02 15:04 nor a duration such as 2h or 7d", text)
}
