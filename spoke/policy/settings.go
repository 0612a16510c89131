package policy

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
)

// Settings are what the host decides about the environment of agents. Those of
// the policy are for all agents; those of an entry of commands win over them.
type Settings struct {
	Path        string           `yaml:"path,omitempty" json:"path,omitempty"`                   // PATH, and where programs are looked up; "" = DefaultPath
	Home        string           `yaml:"home,omitempty" json:"home,omitempty"`                   // HOME; "" = the agent's directory
	Env         map[string]Value `yaml:"env,omitempty" json:"env,omitempty"`                     // variables, whatever an order asks for
	EnvFromFile string           `yaml:"env_from_file,omitempty" json:"env_from_file,omitempty"` // more of them, a NAME=VALUE per line; relative to the policy

	FromFile map[string]Value `yaml:"-" json:"-"` // what that file holds; it wins over Env
}

// A Value is the value of a variable. It shows itself nowhere.
type Value string

// hidden stands for a value wherever one would be shown.
const hidden = "(hidden)"

// Format writes no value, whatever the verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText does not say the value.
func (Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

func (s Settings) empty() bool {
	return s.Path == "" && s.Home == "" && len(s.Env) == 0 && s.EnvFromFile == ""
}

// check looks at all but the files, which it does not open. at is the place of
// the settings in the policy.
func (s Settings) check(at string) *problem {
	for _, dir := range filepath.SplitList(s.Path) {
		if !filepath.IsAbs(dir) {
			return wrong(at+".path", "path has the entry %q, which is not absolute; write whole paths, separated by colons", dir)
		}
	}
	if s.Home != "" && !filepath.IsAbs(s.Home) {
		return wrong(at+".home", "home %q is not absolute; write the whole path", s.Home)
	}
	if strings.Contains(s.Home, "*") {
		return wrong(at+".home", "home %q has a *, which stands for nothing in a path; write the one directory that it is", s.Home)
	}
	if err := checkVariables(s.Env); err != nil {
		return wrong(at+".env", "env: %v", err)
	}
	if (runtime.Exec{Host: map[string]string{"PATH": s.Path, "HOME": s.Home}}).Check() != nil {
		return wrong(at, "path or home holds a NUL, is not UTF-8, or is too long")
	}
	return nil
}

// checkVariables refuses names and values that no agent could be given.
func checkVariables(env map[string]Value) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if upper := strings.ToUpper(name); upper == "PATH" || upper == "HOME" {
			return fmt.Errorf("variable %q has a setting of its own; write %s: VALUE beside env", name, strings.ToLower(name))
		}
	}
	return runtime.Exec{Host: plainValues(env)}.Check()
}

func plainValues(env map[string]Value) map[string]string {
	list := make(map[string]string, len(env))
	for name, v := range env {
		list[name] = string(v)
	}
	return list
}

// readSettings reads the files that the policy in dir names.
func (p *Policy) readSettings(dir string) error {
	list := []*Settings{&p.Settings}
	for i := range p.Commands {
		list = append(list, &p.Commands[i].Settings)
	}
	for i := range p.profiles {
		list = append(list, &p.profiles[i].Settings)
	}
	for _, s := range list {
		if s.EnvFromFile == "" {
			continue
		}
		path := s.EnvFromFile
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		raw, _, err := readFile(path, hostfile.Rule{Secret: true})
		if err != nil {
			return fmt.Errorf("env_from_file: %w", err)
		}
		if s.FromFile, err = parseVariables(raw); err != nil {
			return fmt.Errorf("env_from_file: %s: %w", path, err)
		}
	}
	return nil
}

// parseVariables reads lines of NAME=VALUE. A value is all behind the first =,
// as it stands: there are no quotes, no escapes and nothing is expanded. Empty
// lines and lines that begin with # are skipped.
func parseVariables(raw []byte) (map[string]Value, error) {
	env := map[string]Value{}
	n := 0
	for line := range bytes.Lines(raw) {
		n++
		text := strings.TrimSuffix(string(line), "\n")
		if strings.TrimSpace(text) == "" || text[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(text, "=")
		switch {
		case !ok:
			return nil, fmt.Errorf("line %d is not NAME=VALUE; a comment begins with #, and a value is one line", n)
		case strings.HasSuffix(value, "\r"):
			return nil, fmt.Errorf("line %d ends in a carriage return; save the file with line feeds only", n)
		}
		if _, twice := env[name]; twice {
			return nil, fmt.Errorf("line %d sets %q a second time; keep one of them", n, name)
		}
		if err := checkVariables(map[string]Value{name: Value(value)}); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		env[name] = Value(value)
	}
	return env, checkVariables(env)
}

// Exec is the command of s, whose variables have the values env, in the environment that the host decides; where its
// agent runs and what it is told of itself are the caller's to add. Without an entry that allows s it has no Argv: a link that
// named an allowed program may lead to another one by now.
func (p *Policy) Exec(s *commands.Spawn, env map[string]string) runtime.Exec {
	c, ok := p.Match(s.Argv)
	return p.ExecNamed(s, env, &Named{entry: c, matched: ok})
}

// ExecNamed is Exec by the entry that was found when what s names was opened.
func (p *Policy) ExecNamed(s *commands.Spawn, env map[string]string, n *Named) runtime.Exec {
	e := runtime.Exec{Argv: s.Argv, Path: DefaultPath, Env: map[string]string{}, Allowed: p.namesFor(s), Host: map[string]string{}}
	for _, v := range s.Env {
		e.Env[v.Name] = env[v.Name]
	}
	p.Settings.apply(&e)
	if n.matched {
		n.entry.Settings.apply(&e)
		e.Argv = n.entry.argv(s.Argv)
	} else {
		e.Argv = nil
	}
	return e
}

// apply sets s over what e has.
func (s Settings) apply(e *runtime.Exec) {
	if s.Path != "" {
		e.Path = s.Path
		e.SetHost("PATH", s.Path)
	}
	if s.Home != "" {
		e.SetHost("HOME", s.Home)
	}
	for _, env := range []map[string]Value{s.Env, s.FromFile} {
		for name, v := range env {
			e.SetHost(name, string(v))
		}
	}
	for _, v := range s.FromFile { // a file that nobody else may read
		e.Secrets = append(e.Secrets, string(v))
	}
}
