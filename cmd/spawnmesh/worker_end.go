package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/door"
)

func (w *worker) doneCommand() *cobra.Command {
	var said door.Done
	var file string
	var artifacts []string
	c := &cobra.Command{
		Use: "done", Short: "Say what the agent has done", Args: cobra.NoArgs,
		Long: `Say what the agent has done: it is in its result, and its last word before its end
counts. How the agent ended is what its supervisor sees: with another exit code than
0 it has not completed, whatever it says.

An artifact is a file in the working directory. The spoke reads its size and digest,
of 64 files and 256 MiB together at most; the file itself stays on the host.`,
		Example: "  spawnmesh worker done --summary 'fixed 3 files' --artifact log=build.log",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			for _, text := range artifacts {
				name, path, ok := strings.Cut(text, "=")
				if !ok || name == "" || path == "" {
					return misuse("%q is not NAME=PATH", commands.Clip(text)).Hinting("name an artifact as log=build.log")
				}
				said.Artifacts = append(said.Artifacts, door.Named{Name: name, Path: path})
			}
			if file != "" {
				if said.Data, err = w.a.readNamed(c.Context(), source{what: "--data", path: file, input: file == "-", most: commands.MaxData}); err != nil {
					return err
				}
			}
			return w.say(c.Context(), "/v1/done", said)
		},
	}
	c.Flags().StringVar(&said.Summary, "summary", "", "what it has done, in a `TEXT` for people")
	c.Flags().StringVar(&file, "data", "", "JSON for programs, in `FILE`, of 64 KiB at most; - is standard input")
	c.Flags().StringArrayVar(&artifacts, "artifact", nil, "a file that it leaves, as `NAME=PATH` (repeatable)")
	return c
}

func (w *worker) failCommand() *cobra.Command {
	var said door.Failed
	c := &cobra.Command{
		Use: "fail", Short: "Say why the agent could not do its work", Args: cobra.NoArgs,
		Long: `Say why the agent could not do its work: it is in its result, and its last word
before its end counts. The agent has failed when it then ends with another exit code
than 0, and is tried again as its order says; with --no-retry it is not.`,
		Example: "  spawnmesh worker fail --reason 'the repository is empty' --no-retry; exit 1",
		RunE: func(c *cobra.Command, _ []string) error {
			if strings.TrimSpace(said.Reason) == "" {
				return misuse("no --reason given").Hinting("say why in a few words")
			}
			return w.say(c.Context(), "/v1/fail", said)
		},
	}
	c.Flags().StringVar(&said.Reason, "reason", "", "why, in a `TEXT` for people")
	c.Flags().BoolVar(&said.Final, "no-retry", false, "it is of no use to try again")
	return c
}
