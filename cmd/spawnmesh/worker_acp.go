package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/acp"
	"github.com/spawnmesh/spawnmesh/spoke/door"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
)

const (
	maxPrompt = 1 << 20
	maxInputs = 100
)

// acpFlags are those of worker acp, beside what an Adapter has.
type acpFlags struct {
	prompt, promptFile string
	patterns           []string
	askFor, begin      days
	fresh              bool
}

func (w *worker) acpCommand() *cobra.Command {
	adapter := &acp.Adapter{}
	f := &acpFlags{askFor: days(commands.DefaultQuestionFor), begin: days(2 * time.Minute)}
	c := &cobra.Command{
		Use: "acp [flags] -- AGENT [ARG...]", Short: "Have a coding agent do the task that is its prompt", Args: cobra.MinimumNArgs(1),
		Long: `Have a coding agent that speaks the Agent Client Protocol do the task that is its
prompt, in the working directory. This is what a spoke runs for such agents: it
starts AGENT and tells the spoke its plan as progress, keeps its session for the next
attempt, asks people where it wants to be allowed something, and says how it ended.
What the agent says and does is printed.

The prompt is --prompt, --prompt-file, the file that SPAWNMESH_PROMPT_FILE names, or
standard input. Which tools the agent may use say --allow, --deny and --ask by their
kinds: read, edit, delete, move, search, execute, think, fetch, switch_mode, other,
or * for all that are not named. A person is asked for what no rule names.

Exit codes: 0 it has ended its turn; 1 it has failed; 69 it is not logged in, or not
installed; 75 it has met a limit of its provider; 76 it does not speak the protocol.`,
		Example: "  spawnmesh worker acp --allow read --allow edit -- codex-acp < task.md",
		RunE: func(c *cobra.Command, args []string) error {
			adapter.Argv = args
			return w.runACP(c.Context(), adapter, f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.prompt, "prompt", "", "the task, in a `TEXT`")
	fl.StringVar(&f.promptFile, "prompt-file", "", "the task, in a `FILE`")
	fl.StringArrayVar(&adapter.Inputs, "input", nil, "tell the agent of this `FILE` (repeatable)")
	fl.StringSliceVar(&adapter.Rules.Allow, "allow", nil, "a `KIND` of tools that it may use (repeatable)")
	fl.StringSliceVar(&adapter.Rules.Deny, "deny", nil, "a `KIND` of tools that it may not use (repeatable)")
	fl.StringSliceVar(&adapter.Rules.Ask, "ask", nil, "a `KIND` of tools that a person is asked for (repeatable)")
	fl.Var(&f.askFor, "ask-for", "wait for a person for so long; then the tool is not used")
	fl.StringVar(&adapter.Auth, "auth", "", "log in by this `METHOD` of the agent, where it asks for that")
	fl.Var(&f.begin, "begin", "the agent has so long to begin")
	fl.BoolVar(&f.fresh, "new-session", false, "begin a new session in each attempt")
	fl.StringArrayVar(&f.patterns, "limit-pattern", nil, "words (`RE2`) of an agent that meets a limit (repeatable)")
	return c
}

// runACP has the agent do the task of this attempt.
func (w *worker) runACP(ctx context.Context, a *acp.Adapter, f *acpFlags) (err error) {
	if err := a.Rules.Check(); err != nil {
		return err
	}
	for _, text := range f.patterns {
		words, err := regexp.Compile(text)
		if err != nil {
			return misuse("--limit-pattern: %v", err).Hinting("write a regular expression of RE2")
		}
		a.Limits = append(a.Limits, words)
	}
	if a.Dir, err = os.Getwd(); err != nil {
		return fmt.Errorf("finding the working directory: %w", err)
	}
	if a.Prompt, a.Changes, err = w.prompt(ctx, f); err != nil {
		return err
	}
	given, err := w.given(ctx)
	if err != nil {
		return err
	}
	a.Inputs = append(a.Inputs, given...)
	for i, path := range a.Inputs {
		if !filepath.IsAbs(path) {
			a.Inputs[i] = filepath.Join(a.Dir, path)
		}
	}
	a.AskFor, a.Begin = time.Duration(f.askFor), time.Duration(f.begin)
	if !f.fresh {
		a.Session = w.a.getenv(runtime.SessionVariable)
	}
	a.Attempt, _ = strconv.Atoi(w.a.getenv(runtime.AttemptVariable))
	if file := w.a.getenv(runtime.CheckpointVariable); file != "" {
		before, err := w.a.readNamed(ctx, source{what: runtime.CheckpointVariable, path: file, most: door.MaxCheckpoint})
		if err != nil {
			return err
		}
		a.Before = []byte(before)
	}
	if w.a.getenv(runtime.SocketVariable) != "" {
		if a.Door, err = w.client(); err != nil {
			return err
		}
	}
	a.Name, a.Release, a.Stdout, a.Stderr = "spawnmesh", version(), w.a.out, w.a.err
	if code := a.Run(ctx); code != 0 {
		return exitCode(code)
	}
	return nil
}

// prompt reads the task, and what a review wants changed of what was delivered for it. The file of the prompt has both.
func (w *worker) prompt(ctx context.Context, f *acpFlags) (task, changes string, err error) {
	if file := w.a.getenv(runtime.ChangesVariable); file != "" {
		if changes, err = w.a.readNamed(ctx, source{what: runtime.ChangesVariable, path: file, most: maxPrompt}); err != nil {
			return "", "", err
		}
	}
	read := func(file string) (string, error) {
		return w.a.readNamed(ctx, source{what: "the prompt", path: file, input: file == "", most: maxPrompt, larger: "leave more of it in files, and name them"})
	}
	file := cmp.Or(f.promptFile, w.a.getenv(runtime.PromptVariable))
	if task = f.prompt; task == "" && file != "" {
		task, err = read(file)
	}
	if task = commands.ReworkOf(task, changes); err == nil && task == "" && (file == "" || changes != "") {
		task, err = read("")
	}
	if err == nil && task+changes == "" {
		err = misuse("the prompt is empty").Hinting("give the task with --prompt, --prompt-file, or on standard input")
	}
	return task, changes, err
}

// given are the paths that the order of this attempt brings, without the working directory itself.
func (w *worker) given(ctx context.Context) (paths []string, err error) {
	file := w.a.getenv(runtime.InputsVariable)
	if file == "" {
		return nil, nil
	}
	text, err := w.a.readNamed(ctx, source{what: runtime.InputsVariable, path: file, most: maxPrompt})
	if err != nil {
		return nil, err
	}
	var list []commands.Given
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, misuse("%s names %s, which is no list of inputs: %v", runtime.InputsVariable, file, err)
	}
	here, _ := os.Getwd() // without it all are told
	for _, g := range list[:min(len(list), maxInputs)] {
		if g.Path != here {
			paths = append(paths, g.Path)
		}
	}
	return paths, nil
}
