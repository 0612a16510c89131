package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

func (a *app) policyCommand() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Decide what may run on this host"}
	var preset string
	var force bool
	set := &cobra.Command{
		Use: "init", Short: "Write a policy file to begin with", Args: cobra.NoArgs,
		Example: "  spawnmesh spoke policy init --preset commands",
		RunE:    func(*cobra.Command, []string) error { return a.policyInit(preset, force) },
	}
	set.Flags().StringVar(&preset, "preset", "deny", "`NAME`: "+presetNames)
	set.Flags().BoolVar(&force, "force", false, "replace the policy that is there")
	show := &cobra.Command{
		Use: "show", Short: "Show the policy that a spoke started now would obey", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.policyShow() },
	}
	reload := &cobra.Command{
		Use: "reload", Short: "Let the running spoke read its policy again", Args: cobra.NoArgs,
		Long: `Let the running spoke read its policy again, with the files that it names. It holds
for what is accepted and what starts from then on; agents that run go on. A policy
that cannot be used is refused whole, and the one before stays in force; so is one
that demands an isolation that this host does not hold.

A spoke does the same when it gets SIGHUP; its log says what became of it.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.policyReload(c.Context()) },
	}
	c.AddCommand(set, show, a.policyTestCommand(), a.policyExplainCommand(), reload)
	return c
}

func (a *app) policyTestCommand() *cobra.Command {
	return asking(a.policyTest, &cobra.Command{
		Use: "test [flags] -- CMD [ARG...]", Short: "Ask the policy whether it would let a command run",
		Long: `Ask the policy whether it would let a command run: which entry of commands allows it
and which variables the host sets, or why each entry does not fit. An entry allows
exactly its own words: * is one argument, ** at its end any further ones or none.
What agents are confined by is asked of the spoke that runs here; without one it is
not known.

The exit code is 0 when it would, 6 when it would not, 7 when this host lacks a
capability.`,
		Example: "  spawnmesh spoke policy test --dir /srv/build -- go test ./...",
	})
}

// asking lets c say of which order the policy is asked.
func asking(ask func(ctx context.Context, s commands.Spawn, env map[string]string) error, c *cobra.Command) *cobra.Command {
	var s commands.Spawn
	var env, secrets, secretFiles, files []string
	var isolation string
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if len(args) == 0 && s.Runtime == commands.RuntimeExec {
			return misuse("no command given").Hinting("put it after --, as in").Running("spoke", "policy", c.Name(), "--", "echo", "hi")
		}
		if err := checkLevel("--isolation", isolation); err != nil {
			return err
		}
		var values commands.Values
		if s.Env, values, err = plainVariables(env); err != nil {
			return err
		}
		set := map[string]string{}
		for i, v := range s.Env {
			set[v.Name] = values[i].Reveal()
		}
		s.Env = append(s.Env, named(commands.EnvSecret, secrets)...)
		s.Env = append(s.Env, named(commands.EnvFile, secretFiles)...)
		s.Files = inlined(files)
		s.Capabilities = append(s.Capabilities, commands.IsolationCapabilities(isolation)...)
		s.Argv, s.Task = args, "00000000-0000-4000-8000-000000000000"
		if err := s.ValidateOrder(); err != nil {
			return err
		}
		return ask(c.Context(), s, set)
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVar(&s.Dir, "dir", "", "as if it ran in `DIR`")
	f.StringVar(&s.Runtime, "runtime", commands.RuntimeExec, "with the `RUNTIME` exec or noop")
	f.StringArrayVar(&env, "env", nil, "as if `NAME=VALUE` were set (repeatable)")
	f.StringArrayVar(&secrets, "secret", nil, "as if the secret `NAME` were set; a value behind = is not read (repeatable)")
	f.StringArrayVar(&secretFiles, "secret-file", nil, "as if `NAME` held the path of a file with a secret (repeatable)")
	f.StringArrayVar(&files, "file", nil, "as if a file came with the order for the path DST; SRC is not read (`SRC:DST`, repeatable)")
	f.BoolVar(&s.Stdin, "stdin", false, "as if standard input came with the order")
	f.StringArrayVar(&s.Capabilities, "capability", nil, "as if the capability `NAME` were required (repeatable)")
	f.StringVar(&isolation, "isolation", "", "as if isolation by `LEVEL`, or more, were demanded: "+levelWords)
	return c
}

// named are the variables that pairs name, without their values.
func named(as string, pairs []string) (list []commands.EnvVar) {
	for _, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		list = append(list, commands.EnvVar{Name: name, As: as})
	}
	return list
}

// inlined are the files that pairs name, without what they hold.
func inlined(pairs []string) (list []commands.File) {
	for _, pair := range pairs {
		list = append(list, commands.File{Path: pair[strings.LastIndexByte(pair, ':')+1:]})
	}
	return list
}

const presetNames = "deny (nothing), commands (a list to edit) or open (anything)"

func presetText(name string) (string, error) {
	text, ok := policy.Presets[name]
	if !ok {
		return "", misuse("preset %q is not one of deny, commands, open", name)
	}
	return text, nil
}

func (a *app) policyInit(preset string, force bool) error {
	text, err := presetText(preset)
	if err != nil {
		return err
	}
	dir, err := a.dir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	path := policy.File(dir)
	if err := writePolicy(path, text, force); err != nil {
		return err
	}
	if !a.forPeople() {
		v := map[string]string{"path": path, "preset": preset}
		return a.print(v, []any{v}, table{names: []string{path}})
	}
	a.did("%s was written", path)
	fmt.Fprintln(a.out, path)
	fmt.Fprintf(a.err, "a running spoke obeys it after: %s spoke policy reload\n", a.self())
	return nil
}

// writePolicy replaces the file whole: a spoke that starts meanwhile reads the
// old policy or the new one.
func writePolicy(path, text string, force bool) error {
	if _, err := os.Lstat(path); err == nil && !force {
		return commands.Refuse(commands.Conflict, "there is a policy already: %s", path).Hinting("edit it, or replace it with --force")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing the policy: %w", err)
	}
	if err := fsync.Replace(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	return nil
}

func (a *app) policyReload(ctx context.Context) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	v, err := control.Read[policy.Change](c.API().ReloadPolicy(ctx, nil))
	if err != nil {
		return err
	}
	a.did("policy %s is in force; see: %s", v.Policy, a.line("spoke", "policy", "show"))
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Policy}})
	}
	if len(v.Lifted) > 0 {
		fmt.Fprintf(a.err, "limits are lifted of: %s\n", strings.Join(v.Lifted, ", "))
	}
	if v.Policy == v.Was {
		fmt.Fprintf(a.out, "policy %s stays in force: no rule has changed; values of variables were read again\n", v.Policy)
		return nil
	}
	fmt.Fprintf(a.out, "policy %s is in force, was %s%s\n", v.Policy, v.Was, confinedBy(v.Level))
	return nil
}

// confinedBy says what agents are confined by, behind a sentence.
func confinedBy(level string) string {
	switch level {
	case "":
		return ""
	case commands.IsolationNone:
		return "; agents are not confined: isolation is none"
	}
	return "; agents are confined by " + level
}

func (a *app) policyShow() error {
	p, err := a.policy()
	if err != nil {
		return err
	}
	if a.wantsJSON() {
		v := struct {
			*policy.Policy
			ID string `json:"policy"`
		}{p, p.ID()}
		return a.print(v, []any{v}, table{})
	}
	raw, err := p.Text()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "# policy %s; values of variables are not shown\n%s", p.ID(), raw)
	return err
}

// policy reads the policy. What is wrong with it is for the host to correct.
func (a *app) policy() (*policy.Policy, error) {
	dir, err := a.dir()
	if err != nil {
		return nil, err
	}
	p, err := policy.Load(dir)
	if err != nil {
		return nil, misuse("%v", err)
	}
	return p, nil
}

func (a *app) policyTest(ctx context.Context, s commands.Spawn, env map[string]string) error {
	dir, err := a.dir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(policy.File(dir)); errors.Is(err, fs.ErrNotExist) {
		return commands.Refuse(commands.Policy, "nothing may run here: there is no policy %s", policy.File(dir)).
			Hinting("write one to edit").Running("spoke", "policy", "init", "--preset", "commands")
	}
	p, inForce, err := a.policyHere(ctx)
	if err != nil {
		return err
	}
	if r := p.Foresee(&s, env); r != nil {
		if _, fits := p.Match(s.Argv); r.Code == commands.Policy && s.Runtime == commands.RuntimeExec && !fits {
			r.Hint = strings.Join(p.Explain(s.Argv), "; ")
		}
		if text := p.ExplainDir(&s); text != "" && r.Code == commands.BadPath {
			r.Hint = text + "; " + r.Hint
		}
		return r
	}
	return a.sayAllowed(p, inForce, &s)
}

// An allowance says why a command may run, and what the host sets for it.
type allowance struct {
	Allowed   bool     `json:"allowed"`
	Policy    string   `json:"policy"`
	InForce   string   `json:"in_force,omitempty"` // in the spoke that runs, where that is another one
	Entry     string   `json:"entry,omitempty"`    // of commands, the first that fits
	Line      int      `json:"line,omitempty"`
	Isolation string   `json:"isolation,omitempty"` // what it is confined by; "" = not known, or nothing is started
	Missing   string   `json:"missing,omitempty"`   // why the program cannot be started now
	HostEnv   []string `json:"host_env,omitempty"`  // names of the variables that the host sets
}

// byEntry says which entry of the policy, or which profile, allows an order.
func byEntry(line int, entry string) string {
	if line == 0 {
		return "by " + entry
	}
	return fmt.Sprintf("by line %d: %s", line, entry)
}

func (a *app) sayAllowed(p *policy.Policy, inForce string, s *commands.Spawn) error {
	v := allowance{Allowed: true, Policy: p.ID(), InForce: inForce}
	var reach policy.Reach
	if s.Runtime == commands.RuntimeExec {
		c, _ := p.Match(s.Argv)
		reach = p.Reach("", s)
		v.Entry, v.Line, v.HostEnv, v.Isolation, v.Missing = c.String(), c.Line(), reach.HostEnv, reach.Isolation, reach.Missing
	}
	if a.wantsJSON() {
		return a.print(v, []any{v}, table{})
	}
	lines := []string{allowed(reach.Program, v.Missing)}
	if v.Entry != "" {
		lines = append(lines, byEntry(v.Line, v.Entry), "isolation: "+reach.Confined)
	}
	if len(v.HostEnv) > 0 {
		lines = append(lines, "the host sets: "+strings.Join(v.HostEnv, ", "))
	}
	for _, line := range append(lines, a.ofTheFile(inForce)...) {
		fmt.Fprintln(a.out, printable(line))
	}
	return nil
}
