// Command spawnmesh runs an instance of the mesh and asks instances to do things.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func main() {
	ctx, hurry := signals()
	os.Exit(run(ctx, &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, hurry: hurry}, os.Args[1:]))
}

// signals returns what the first SIGINT or SIGTERM ends and what the second
// closes: whoever waits at its stop stops waiting.
func signals() (ctx context.Context, hurry <-chan struct{}) {
	ctx, stop := context.WithCancel(context.Background())
	second, got := make(chan struct{}), make(chan os.Signal, 2)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-got
		stop()
		<-got
		close(second)
	}()
	return ctx, second
}

// app is what every command shares: streams, environment and global flags.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	dataDir  string
	context  string
	output   string
	json     bool
	noColour bool
	noPager  bool
	hurry    <-chan struct{} // closed by the second signal; may be nil
	unread   []*unread       // streams of an instance

	workspace string // of the backlog and its limits
	effect    string // see did
	bare      bool   // tables have no headings: they go on with one that has
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, a *app, args []string) int {
	answer := &answer{to: a.out}
	a.out = answer
	defer a.finish()
	root := a.root()
	root.SetArgs(args)
	err := checkText(args)
	if err == nil {
		err = a.heard(answer, root.ExecuteContext(ctx))
	}
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	a.json = a.json || asksForJSON(args) // the flags after a bad one were not read
	return a.printError(rephrase(root, err))
}

// finish gives who reads what an instance has said time to do so.
func (a *app) finish() {
	for _, u := range a.unread {
		u.end()
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "spawnmesh",
		Short: "Spawn agents on other people's machines, safely",
		Long: `spawnmesh spawns agents on other people's machines, safely.

A hub asks, a spoke decides. Nothing is lost or run twice while a link is down,
and every order and outcome is a signed fact.

An instance lives in a data directory: --data-dir, else $SPAWNMESH_DATA_DIR, else
$XDG_STATE_HOME/spawnmesh (~/.local/state/spawnmesh; for root /var/lib/spawnmesh).
A hub on another machine is asked by --context, or $SPAWNMESH_CONTEXT.

Try it:  spawnmesh demo`,
		Version: version(), SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("data-dir") && a.dataDir == "" {
				return misuse("--data-dir is empty").Hinting("name a directory; is the variable that should hold it set?")
			}
			if c.Flags().Lookup("workspace") != nil {
				if err := backlog.CheckWorkspace(a.workspace); err != nil {
					return err
				}
			}
			if c.Flags().Changed("context") && a.context == "" {
				return misuse("--context is empty").Hinting("name a context; is the variable that should hold it set?")
			}
			return a.checkOutput()
		},
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate(versionLine())
	f := root.PersistentFlags()
	f.StringVar(&a.dataDir, "data-dir", "", "`DIR` where the instance keeps its data")
	f.StringVar(&a.context, "context", "", "ask the hub that the context `NAME` leads to")
	f.StringVarP(&a.output, "output", "o", "table", "show as `FORMAT`: table, wide, json, ndjson or name")
	f.BoolVar(&a.json, "json", false, "same as -o json")
	f.BoolVar(&a.noPager, "no-pager", false, "no pager for long lists ($SPAWNMESH_PAGER, $PAGER)")
	f.BoolVar(&a.noColour, "no-color", false, "no colours ($NO_COLOR)")
	root.AddGroup(&cobra.Group{ID: "try", Title: "Try:"}, &cobra.Group{ID: "run", Title: "Run an instance:"},
		&cobra.Group{ID: "agents", Title: "Agents:"}, &cobra.Group{ID: "backlog", Title: "Backlog:"},
		&cobra.Group{ID: "limits", Title: "Limits of the backlog:"}, &cobra.Group{ID: "federation", Title: "Connections:"},
		&cobra.Group{ID: "access", Title: "Other programs:"}, &cobra.Group{ID: "help", Title: "Help:"})
	add := func(group string, list ...*cobra.Command) {
		for _, c := range list {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("try", a.demoCommand(), a.doctorCommand(), a.healthCommand(), a.benchCommand(), a.conformanceCommand(), a.versionCommand())
	add("run", a.hubCommand(), a.spokeCommand(), a.configCommand(), a.backupCommand(), a.restoreCommand())
	add("agents", a.spawnCommand(), a.runCommand(), a.scheduleCommand(), a.statusCommand(), a.resultCommand(), a.fetchCommand(), a.diffCommand(), a.reviewCommand(), a.killCommand(), a.cancelCommand(), a.pauseCommand(), a.resumeCommand(), a.retryCommand(), a.archiveCommand(), a.unarchiveCommand(), a.labelCommand(), a.logsCommand(), a.agentsCommand(), a.spokesCommand(), a.eventsCommand(), a.webhookCommand(), a.whyCommand(), a.inboxCommand(), a.answerCommand(), a.messageCommand(), a.workerCommand())
	add("backlog", a.backlogCommand(), a.workspaceCommand())
	add("limits", a.budgetCommand(), a.quotaCommand(), a.laneCommand(), a.freezeCommand(), a.unfreezeCommand(), a.retentionCommand())
	add("federation", a.inviteCommand(), a.connectionsCommand(), a.keysCommand(), a.auditCommand())
	add("access", a.tokenCommand(), a.contextCommand(), a.apiCommand())
	a.explain(root)
	return root
}
