package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// spawnFlags are what the operator says about one spawn: by flags, or in a file of jobs.
type spawnFlags struct {
	req          hub.SpawnRequest
	env          []string
	secrets      []string
	secretFiles  []string
	labels       []string
	files        []string
	stdinFile    string
	stdin        bool
	prompt       string
	promptFile   string
	profile      string
	input        string // what --stdin has brought
	said         string // what --prompt-file - has brought
	with         []string
	dirty        bool
	beside       bool        // what has no room in the order may be sent to the hub before
	large        []largeFile // of files
	timeout      days
	estimate     days
	backoff      days
	expires      days
	isolation    string
	wait, follow bool
	most         days // how long
	jobs         string
	schema       bool
}

func (a *app) spawnCommand() *cobra.Command {
	var f spawnFlags
	c := &cobra.Command{
		Use: "spawn [flags] -- CMD [ARG...]", Short: "Spawn an agent on a spoke, or many from a file",
		Long: `Spawn an agent on a spoke. An agent is any program.

When the id is printed the order is stored and cannot be lost: it reaches the
spoke when the link is up, and its end comes back. The spoke's own policy decides
whether it runs.

With --wait or --follow, standard error says how the agent stands, now and whenever
that changes. The exit code tells the result: 0 completed, 9 failed, 10 killed, 5
the connection was revoked, 6 refused by the spoke, 7 nothing could run it, 124
timed out. An interrupt detaches (130); the agent goes on. An order that the hub
does not take ends with 6, too, as while it is frozen (FROZEN).

Files, standard input and values of variables come with the order, encrypted for the
spoke, and have 96 KiB together. A file that has no room there is sent to the hub
first, in clear, and so is what --with names: the repository that PATH is in, with
the history of the commit REF (default: HEAD), or a plain directory. The first is the
agent's directory, a branch of git spawnmesh/ID; others are below it by their names.
--dirty adds what is not committed, without ignored files. The policy of the spoke
allows files and standard input, and inputs up to a size, or not. All of these go
into a fresh directory only, so not with --dir.

With --jobs all jobs of a file are checked, and that their spokes are there; then
they are ordered, a few at a time. A document of it is a job, whose fields are argv
and the flags below (_ for -, and the plural where one may be given again), or
{defaults: {...}, jobs: [...]}. Flags that are given go over the file; env and
secrets name by name. --idempotency-key KEY gives each job KEY/1, KEY/2 ...: the
same line again orders only what is missing. The exit code is the highest of all.`,
		Example: `  spawnmesh spawn --spoke attic -- go test ./...
  spawnmesh spawn --any --capability gpu --timeout 2h --follow -- ./train.sh
  spawnmesh spawn --file train.sh:train.sh --file x.conf:etc/x.conf -- ./train.sh
  spawnmesh spawn --spoke attic --with . --dirty --wait -- ./fix.sh
  git diff | spawnmesh run --spoke attic --stdin -- wc -l
  spawnmesh spawn -f jobs.yaml --idempotency-key nightly-2026-11-26 --wait
  spawnmesh spawn --spoke attic --wait -o json -- sh -c 'echo hi; exit 3'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return a.spawn(c, f, args) },
	}
	fl := c.Flags()
	fl.SetInterspersed(false)
	f.fields(fl)
	fl.BoolVar(&f.stdin, "stdin", false, "the agent reads standard input from here, which is read to its end first")
	fl.StringArrayVar(&f.with, "with", nil, "send the repository or directory PATH, of a repository the commit REF (`PATH[@REF]`, repeatable)")
	fl.BoolVar(&f.dirty, "dirty", false, "send what is not committed in the repositories of --with, too")
	fl.StringVar(&f.req.ID, "id", "", "give the agent this `UUID`, version 7 or 4 (default: a new one)")
	fl.BoolVar(&f.wait, "wait", false, "wait for the result; the exit code tells it")
	fl.BoolVar(&f.follow, "follow", false, "show the agent's output, and wait for the result")
	fl.Var(&f.most, "wait-timeout", "wait no longer than this (130 then; the agent goes on)")
	fl.StringVarP(&f.jobs, "jobs", "f", "", "order the jobs in `FILE` (YAML); - is standard input")
	fl.BoolVar(&f.schema, "schema", false, "print the JSON Schema of such a file, and do nothing else")
	return c
}

// fields adds the flags that a job in a file has as fields: what is here is there, too.
func (f *spawnFlags) fields(fl *pflag.FlagSet) {
	s := &f.req.Spawn
	fl.StringVar(&f.req.Spoke, "spoke", "", "on the spoke `NAME` (default: the only one there is)")
	fl.BoolVar(&f.req.Any, "any", false, "let the hub choose a spoke that can run it, and another one when that refuses")
	fl.StringVar(&f.profile, "profile", "", "run the profile `NAME` of the spoke, in place of a command")
	fl.StringVar(&s.Title, "title", "", "`TEXT` that people see in place of the command")
	fl.StringVar(&s.Runtime, "runtime", commands.RuntimeExec, "`RUNTIME` exec, or noop that starts nothing")
	fl.StringVar(&s.Dir, "dir", "", "run in `DIR` on the spoke (default: a fresh directory)")
	fl.StringArrayVar(&f.env, "env", nil, "set `NAME=VALUE` in the agent's environment (repeatable)")
	fl.StringArrayVar(&f.secrets, "secret", nil, "set `NAME=@FILE` or NAME=env:VARIABLE in the agent's environment, from a file or variable here, and take the value out of its output: where it has 6 bytes or more, as it is and in base64 (in one line), hex, URLs and JSON (repeatable)")
	fl.StringArrayVar(&f.secretFiles, "secret-file", nil, "as --secret, but NAME holds the path of a file with the value (`NAME=@FILE` or NAME=env:VARIABLE, repeatable)")
	fl.StringArrayVar(&f.labels, "label", nil, "give the agent the label `NAME=VALUE`, by which the hub finds it again (repeatable)")
	fl.StringArrayVar(&f.files, "file", nil, "put the file SRC at DST in the agent's directory before each attempt, to be executed if SRC can be (`SRC:DST`, repeatable)")
	fl.StringVar(&f.stdinFile, "stdin-file", "", "the agent reads the file `FILE` from here as its standard input")
	fl.StringVar(&f.prompt, "prompt", "", "give the agent this task, a `TEXT` in a file that SPAWNMESH_PROMPT_FILE names")
	fl.StringVar(&f.promptFile, "prompt-file", "", "give the agent the task in `FILE`; - is standard input")
	fl.StringArrayVar(&s.Capabilities, "capability", nil, "the spoke must have the capability `NAME` (repeatable)")
	fl.StringVar(&f.isolation, "isolation", "", "the spoke must confine the agent by `LEVEL`, or more: "+levelWords)
	fl.IntVar(&s.Priority, "priority", 0, "`N` from -100 to 100, higher is sooner")
	fl.IntVar(&s.MaxRetries, "max-retries", 0, "try a failed run again, at most `N` times, up to 100")
	fl.Var(&f.backoff, "backoff", backoffHelp)
	fl.StringVar(&s.OnLoss, "on-loss", commands.LossFails, "an agent that ran and was lost does `WHAT`: fail, or rerun (once, even without a retry)")
	fl.Var(&f.timeout, "timeout", "end the agent after this long (default: the spoke's limit)")
	fl.BoolVar(&f.req.Spawn.Review, "review", false, "what it delivers waits for a review: see spawnmesh review --help")
	fl.Var(&f.estimate, "estimate", "how long it is thought to take: warn long after it, then end it where it tells no progress")
	fl.Var(&f.expires, "expires-in", "never start it later than this (default 24h, at most 7d)")
	fl.StringVar(&f.req.IdempotencyKey, "idempotency-key", "", "a second spawn with the same `KEY` is the same spawn")
}

// runCommand is what people type who want to see at once what an agent does.
func (a *app) runCommand() *cobra.Command {
	c := a.spawnCommand()
	c.Use, c.Short = "run [flags] -- CMD [ARG...]", "Spawn an agent and follow it: spawn --follow"
	c.Long = `Spawn an agent on a spoke, show its output as it comes and end as it ends. It is
"spawnmesh spawn --follow"; see there for all of it.`
	c.Example = "  spawnmesh run -- go test ./...\n  spawnmesh run --spoke attic --timeout 10m -- ./train.sh"
	_ = c.Flags().Set("follow", "true")
	_ = c.Flags().MarkHidden("follow")
	_ = c.Flags().MarkHidden("wait")
	_ = c.Flags().MarkHidden("schema")
	return c
}

func (a *app) spawn(c *cobra.Command, f spawnFlags, args []string) error {
	if f.schema {
		return a.printJSON(jobSchema())
	}
	if f.most > 0 && !f.wait && !f.follow {
		return misuse("--wait-timeout ends a wait, and nothing waits here").Hinting("add --wait or --follow")
	}
	if f.jobs != "" {
		return a.spawnJobs(c, f, args)
	}
	if f.stdin && f.stdinFile != "" {
		return misuse("--stdin and --stdin-file are both given").Hinting("give the one that the agent is to read")
	}
	if f.stdin && f.promptFile == "-" {
		return misuse("--stdin and --prompt-file - both read standard input").Hinting("put the task into a file, and name that")
	}
	input, err := until(c.Context(), func() (string, error) { return a.inputOf(f) })
	if err != nil {
		return err
	}
	if f.input = input; f.promptFile == "-" {
		f.input, f.said = "", input
	}
	f.beside = true
	f.req.Spawn.Argv = args
	notes, err := until(c.Context(), f.complete)
	if err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(a.err, "note:", n)
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	if err := a.sendInputs(c.Context(), client, &f); err != nil {
		return err
	}
	return a.order(c.Context(), client, &job{spawnFlags: f})
}

// byProfile names the profile as the command, and wants a spoke that has it.
func (f *spawnFlags) byProfile() error {
	if f.profile == "" {
		return nil
	}
	word, err := policy.ProfileWord(f.profile)
	if err == nil && len(f.req.Spawn.Argv) > 0 {
		err = misuse("--profile and a command are both given").Hinting("a profile has its command; its task is --prompt")
	}
	f.req.Spawn.Argv, f.req.Spawn.Capabilities = []string{word}, append(f.req.Spawn.Capabilities, word)
	return err
}

// complete makes the request of what was said, and reads the files that are named. Notes are for people.
func (f *spawnFlags) complete() (notes []string, err error) {
	if err := f.byProfile(); err != nil {
		return nil, err
	}
	f.req.Spawn.TimeoutMS = time.Duration(f.timeout).Milliseconds()
	f.req.Spawn.EstimateMS, f.req.Spawn.BackoffMS = time.Duration(f.estimate).Milliseconds(), time.Duration(f.backoff).Milliseconds()
	f.req.ExpiresInMS = time.Duration(f.expires).Milliseconds()
	if f.req.Labels, err = labelsOf("--label ", f.labels); err != nil {
		return nil, err
	}
	if notes, err = f.environment(); err != nil {
		return nil, err
	}
	if err := f.bring(); err != nil {
		return nil, err
	}
	if err := checkLevel("--isolation", f.isolation); err != nil {
		return nil, err
	}
	f.req.Spawn.Capabilities = append(f.req.Spawn.Capabilities, commands.IsolationCapabilities(f.isolation)...)
	if f.req.ID == "" { // chosen here: whoever gets no answer can ask for it
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		f.req.ID = id.String()
	}
	return notes, nil
}

// orderTask gives one order.
func orderTask(ctx context.Context, c *control.Client, r hub.SpawnRequest) (got hub.SpawnAnswer, err error) {
	if got, err = control.Read[hub.SpawnAnswer](c.API().CreateTask(ctx, nil, r.Revealed())); err != nil {
		return got, unanswered(ctx, r, err)
	}
	if got.ID == "" {
		err = namesNoAgent("spawn")
	}
	return got, err
}

// order orders one agent, and attends to it as was asked for.
func (a *app) order(ctx context.Context, c *control.Client, f *job) error {
	got, err := orderTask(ctx, c, f.req)
	if err != nil && f.at != "" {
		return f.placed(err)
	}
	if err != nil {
		return err
	}
	short := commands.ShortID(got.ID)
	a.did("agent %s was ordered on %s; see: %s", short, got.Spoke, a.line("status", short))
	if a.forPeople() || f.follow || f.wait { // else the answer has it
		a.sayNotNow("", got)
	}
	ctx, done := f.bounded(ctx)
	defer done()
	if f.follow {
		return a.followAgent(ctx, c, got.ID)
	}
	if f.wait {
		return a.waitAgent(ctx, c, got.ID)
	}
	if a.forPeople() {
		fmt.Fprintln(a.out, short)
		if got.Existing {
			fmt.Fprintln(a.err, "this spawn was ordered before; nothing new was ordered")
		}
		return nil
	}
	return a.print(got, anys([]hub.SpawnAnswer{got}), table{names: []string{got.ID}})
}

// sayNotNow says what keeps an agent that was ordered from running now; job names it where there are several.
func (a *app) sayNotNow(job string, got hub.SpawnAnswer) {
	if got.Note != "" {
		fmt.Fprintln(a.err, "note: "+job+"it would not run now: "+printable(commands.OneLine(got.Note)))
	}
}

// bounded ends with the time to wait, where there is one.
func (f *spawnFlags) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.most > 0 {
		return context.WithTimeoutCause(ctx, time.Duration(f.most), errWaited)
	}
	return context.WithCancel(ctx)
}

// levelWords are the levels of isolation as help and errors name them.
var levelWords = strings.Join(commands.IsolationLevels, ", ")

// checkLevel checks the level of isolation that a flag names, "" for none.
func checkLevel(flag, level string) error {
	if level != "" && !slices.Contains(commands.IsolationLevels, level) {
		return misuse("%s %s is not a level; write one of %s", flag, level, levelWords)
	}
	return nil
}

// unanswered says of an order that has no answer that it may have been given.
func unanswered(ctx context.Context, r hub.SpawnRequest, err error) error {
	code, why := commands.CodeOf(err), "the hub did not answer"
	switch refused, said := errors.AsType[*commands.Refused](err); {
	case ctx.Err() != nil:
		code, why = control.Interrupted, "interrupted before the hub answered"
	case said && refused.MayBeDone:
		why, _, _ = strings.Cut(refused.Why, ";")
	case !said || refused.Code != commands.Unreachable || refused.Err == nil:
		return err // it was not sent, or was refused
	}
	// Nothing of err is wrapped: an interrupt that was only cancelled says nothing.
	id := commands.ShortID(r.ID)
	unknown := commands.Refuse(code, "%s; agent %s may have been ordered", why, id)
	unknown.MayBeDone = true
	if r.IdempotencyKey != "" { // an order from before has another id
		return unknown.Hinting("the same line with its --idempotency-key orders nothing twice; what became of it").Running("status", id)
	}
	return unknown.Hinting("what became of it, once the hub answers").Running("status", id)
}

// resultCode is the exit code that tells how an agent ended; nil for success.
func resultCode(v hub.AgentView) error {
	switch v.State {
	case commands.Completed:
		return nil
	case commands.Failed:
		return exitCode(exitFailed)
	case commands.Cancelled:
		return exitCode(exitCancelled)
	case commands.Expired:
		if v.Reason == commands.DeadlineElapsed {
			return exitCode(exitTimedOut)
		}
		return exitCode(exitNoSpoke)
	}
	switch v.Reason {
	case commands.PolicyDenied, commands.GrantDenied:
		return exitCode(exitRefused)
	case commands.LinkRevoked:
		return exitCode(exitUntrusted)
	}
	return exitCode(exitNoSpoke)
}
