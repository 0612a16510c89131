package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/spoke/acp"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

func (a *app) profilesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "profiles", Short: "Give commands of this host names that orders may use",
		Long: `Give commands of this host names that orders may use. A profile is a file of the
host's, profiles/NAME.yaml in the data directory: a program, or a coding agent that
speaks the Agent Client Protocol, and what it may. An order names it alone, as
"spawn --profile NAME". A spoke that runs reads them with its policy.`,
	}
	c.AddCommand(a.profilesListCommand(), a.profilesShowCommand(), a.profilesAddCommand(), a.profilesTestCommand())
	return c
}

func (a *app) profilesListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the profiles of this host", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p, err := a.policy()
			if err != nil {
				return err
			}
			t := table{head: []string{"NAME", "RUNTIME", "COMMAND"}, wide: []string{"ACCOUNT"}, empty: "no profiles; write one: spawnmesh spoke profiles add claude"}
			list := p.Profiles()
			for _, v := range list {
				t.names = append(t.names, v.Name)
				t.rows = append(t.rows, []string{v.Name, v.Runtime, commands.ShellLine(v.Command), v.Account})
			}
			return printList(a, list, t)
		},
	}
}

// profile is one of this host, with its policy.
func (a *app) profile(name string) (p *policy.Policy, v policy.Profile, err error) {
	if p, err = a.policy(); err != nil {
		return p, v, err
	}
	for _, v := range p.Profiles() {
		if v.Name == name {
			return p, v, nil
		}
	}
	return p, v, commands.Refuse(commands.NotFound, "there is no profile %q on this host", commands.Clip(name)).Hinting("see").Running("spoke", "profiles", "list")
}

func (a *app) profilesShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a profile of this host", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, v, err := a.profile(args[0])
			if err != nil {
				return err
			}
			if !a.forPeople() {
				return a.print(v, []any{v}, table{names: []string{v.Name}})
			}
			var list pairs
			list.add("profile", v.Name)
			list.add("runtime", v.Runtime)
			list.add("command", commands.ShellLine(v.Command))
			for _, l := range []struct {
				name  string
				words []string
			}{{"environment", v.Environment}, {"allow", v.Allow}, {"deny", v.Deny}, {"ask", v.Ask}, {"limit patterns", v.LimitPatterns}} {
				list.add(l.name, strings.Join(l.words, ", "))
			}
			list.add("auth", v.Auth)
			list.add("session", v.Session)
			list.add("account", v.Account)
			return a.align(list, 0)
		},
	}
}

func (a *app) profilesAddCommand() *cobra.Command {
	var name string
	var force bool
	c := &cobra.Command{
		Use: "add PRESET", Short: "Write a profile to begin with", Args: cobra.ExactArgs(1),
		Long: `Write a profile to begin with: shell, claude, codex, gemini, opencode or acp. Edit it
to your needs. A spoke that runs knows it after "spawnmesh spoke policy reload".`,
		Example: "  spawnmesh spoke profiles add claude",
		RunE: func(_ *cobra.Command, args []string) error {
			text, ok := policy.ProfilePresets[args[0]]
			if !ok {
				return misuse("there is no preset %q", commands.Clip(args[0])).Hinting("there are %s", strings.Join(slices.Sorted(maps.Keys(policy.ProfilePresets)), ", "))
			}
			if name == "" {
				name = args[0]
			}
			if _, err := policy.ProfileWord(name); err != nil {
				return err
			}
			return a.writeProfile(name, text, force)
		},
	}
	c.Flags().StringVar(&name, "name", "", "its `NAME` here; without it, that of the preset")
	c.Flags().BoolVar(&force, "force", false, "replace the profile that is there")
	return c
}

func (a *app) writeProfile(name, text string, force bool) error {
	dir, err := a.dir()
	if err != nil {
		return err
	}
	path := policy.ProfileFile(dir, name)
	if _, err := os.Lstat(path); err == nil && !force {
		return commands.Refuse(commands.Conflict, "there is a profile already: %s", path).Hinting("edit it, or replace it with --force")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing the profile: %w", err)
	}
	if err := os.MkdirAll(policy.ProfileDir(dir), 0o700); err != nil {
		return fmt.Errorf("making the directory of profiles: %w", err)
	}
	if err := fsync.Replace(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the profile: %w", err)
	}
	if !a.forPeople() {
		v := map[string]string{"path": path, "name": name}
		return a.print(v, []any{v}, table{names: []string{path}})
	}
	a.did("%s was written", path)
	fmt.Fprintln(a.out, path)
	fmt.Fprintf(a.err, "a running spoke knows it after: %s spoke policy reload\n", a.self())
	return nil
}

func (a *app) profilesTestCommand() *cobra.Command {
	within := days(time.Minute)
	c := &cobra.Command{
		Use: "test NAME", Short: "Start the coding agent of a profile, and say whether it could work", Args: cobra.ExactArgs(1),
		Long: `Start the coding agent of a profile and say what it can do, and whether somebody is
logged in. It begins a session and is given nothing to do. It has the PATH of agents,
and what the profile and the policy set: home, env, env_from_file. For the rest it
runs as you, with your environment and unconfined, which an agent does not. Exit code
7 where it could not work.`,
		Example: "  spawnmesh spoke profiles test claude",
		RunE: func(c *cobra.Command, args []string) error {
			p, v, err := a.profile(args[0])
			if err != nil {
				return err
			}
			if v.Runtime != policy.RuntimeACP {
				return misuse("profile %s has the runtime %s: it speaks no protocol", v.Name, v.Runtime).Hinting("order it: spawnmesh spawn --profile %s", v.Name)
			}
			return a.testProfile(c.Context(), p, v, time.Duration(within))
		},
	}
	c.Flags().Var(&within, "within", "it has so long to begin")
	return c
}

func (a *app) testProfile(ctx context.Context, p *policy.Policy, v policy.Profile, within time.Duration) error {
	dir, err := os.MkdirTemp("", "spawnmesh-profile-")
	if err != nil {
		return fmt.Errorf("making a directory for the test: %w", err)
	}
	defer os.RemoveAll(dir)
	word, err := policy.ProfileWord(v.Name)
	if err != nil {
		return err
	}
	e := p.Exec(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{word}}, nil)
	e.Argv, e.Dir = v.Command, dir
	program, err := e.Program()
	if err != nil {
		return commands.Refuse(commands.Capability, "profile %s cannot work: %v", v.Name, err).Hinting("PATH is %s", e.Path)
	}
	env := append(os.Environ(), "PATH="+e.Path)
	for name, value := range e.Host {
		env = append(env, name+"="+value)
	}
	argv := append([]string{program}, v.Command[1:]...)
	probe := acp.Adapter{Argv: argv, Env: env, Auth: v.Auth, Dir: dir, Begin: within, Stdout: io.Discard, Stderr: a.err, Release: version()}
	report, problem := probe.Probe(ctx)
	if problem != "" {
		return commands.Refuse(commands.Capability, "profile %s cannot work: %s", v.Name, problem)
	}
	if !a.forPeople() {
		return a.print(report, []any{report}, table{names: []string{v.Name}})
	}
	var list pairs
	list.add("agent", report.Agent)
	list.add("protocol", fmt.Sprint(report.Protocol))
	list.add("sessions", map[bool]string{true: "go on in the next attempt", false: "begin anew in each attempt"}[report.Load || report.Resume])
	list.add("logged in", "yes")
	return a.align(list, 0)
}
