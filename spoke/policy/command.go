package policy

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spawnmesh/spawnmesh/spoke/runtime"
)

// A Command is an entry of commands: a [Pattern], and what environment its agents get.
type Command struct {
	Run      Pattern `yaml:"run" json:"run"`
	Settings `yaml:",inline"`
	Provider `yaml:",inline"`
	line     int // in the file, from 1; 0 = not known

	profile *Profile // that it is; nil = an entry of the policy
	runs    []string // of a profile
}

// Line is where the entry stands in its file, from 1; 0 when that is not known.
func (c Command) Line() int { return c.line }

// String writes the entry as it stands in a policy, without its environment.
func (c Command) String() string { return c.Run.String() }

// UnmarshalYAML reads an entry: a command line, or run with its environment.
func (c *Command) UnmarshalYAML(unmarshal func(any) error) error {
	var run Pattern
	if unmarshal(&run) == nil {
		c.Run = run
		return nil
	}
	var entry struct {
		Run      Pattern `yaml:"run"`
		Settings `yaml:",inline"`
		Provider `yaml:",inline"`
	}
	err := unmarshal(&entry)
	c.Run, c.Settings, c.Provider = entry.Run, entry.Settings, entry.Provider
	return err
}

// MarshalYAML writes the shortest form that says the same.
func (c Command) MarshalYAML() (any, error) {
	run := c.Run.yaml()
	if c.Settings.empty() && c.Provider.empty() {
		return run, nil
	}
	return struct {
		Run      any `yaml:"run"`
		Settings `yaml:",inline"`
		Provider `yaml:",inline"`
	}{run, c.Settings, c.Provider}, nil
}

// Any reports whether the entry allows every command.
func (c Command) Any() bool { return len(c.Run) == 1 && c.Run[0] == one }

// A program finds what an order means where an entry names a file.
type program struct{ path string } // directories, separated by colons

// is reports whether an order's first word is the program of c. An entry that names a
// file means that file: an order may spell its path otherwise, through links, or leave
// it out where PATH leads to it. The name of the file is the same each time, as many
// programs ask for theirs to know what to do. An error is a fault of this host that keeps it from being said;
// of a path that the order spells, which may not be allowed, it tells only that there is room for nothing.
func (p program) is(c Command, word string) (bool, error) {
	name := c.Run.word(0)
	switch {
	case word == name:
		return true, nil
	case !filepath.IsAbs(name) || filepath.Base(word) != filepath.Base(name):
		return false, nil
	case !strings.Contains(word, "/"):
		return leadsTo(word, cmp.Or(c.Path, p.path), name)
	case !filepath.IsAbs(word):
		return false, nil
	}
	same, err := sameFile(word, name)
	if _, everywhere := runtime.OfHost(err); !everywhere {
		err = nil
	}
	return same, err
}

// leadsTo reports whether the program of a name that is looked for in path is a file.
func leadsTo(name, path, file string) (bool, error) {
	found, before, err := runtime.LookUp(name, path)
	if err == nil {
		var same bool
		if same, err = sameFile(found, file); same {
			return true, nil
		}
		err = cmp.Or(err, before)
	}
	if fault, _ := runtime.OfHost(err); !fault {
		err = nil
	}
	return false, err
}

// argv is what runs of an order that the entry allows: the file that the entry names,
// however the order spells it. Programs look for more beside the path they run by.
func (c Command) argv(argv []string) []string {
	if c.profile != nil {
		return c.runs
	}
	if name := c.Run.word(0); filepath.IsAbs(name) && len(argv) > 0 {
		return append([]string{name}, argv[1:]...)
	}
	return argv
}

// sameFile reports whether two paths lead to the same place. The error is a [*supervisor.StartError].
func sameFile(a, b string) (bool, error) {
	var real [2]string
	for i, path := range []string{a, b} {
		at, err := evalSymlinks(path)
		if err != nil {
			return false, runtime.NotFollowed(path, err)
		}
		real[i] = at
	}
	return real[0] == real[1], nil
}

// evalSymlinks is filepath.EvalSymlinks; tests have a disk that fails.
var evalSymlinks = filepath.EvalSymlinks

func (p *Policy) program() program { return program{cmp.Or(p.Path, DefaultPath)} }

// fits reports whether the entry allows argv. An error is a fault of this host that keeps it from being said.
func (p *Policy) fits(c Command, argv []string) (bool, error) {
	if c.Any() {
		return !namesProfile(argv), nil // a profile is a file, and no program of that name
	}
	if len(argv) == 0 || c.Run.unfit(argv) != "" {
		return false, nil
	}
	return p.program().is(c, argv[0])
}

// Match returns the first entry that allows argv.
func (p *Policy) Match(argv []string) (Command, bool) {
	c, ok, _ := p.match(argv)
	return c, ok
}

// match is Match, with the fault of this host that keeps it from being said which entry that is, a [*supervisor.StartError].
func (p *Policy) match(argv []string) (Command, bool, error) {
	for _, c := range p.entries() {
		switch ok, err := p.fits(c, argv); {
		case err != nil:
			return Command{}, false, err
		case ok:
			return c, true, nil
		}
	}
	return Command{}, false, nil
}

// Explain says to the host why no entry of commands allows argv: a line for each
// that names its program, and how many name others.
func (p *Policy) Explain(argv []string) []string {
	var list []string
	others := 0
	for _, c := range p.Commands {
		if ok, _ := p.program().is(c, argv[0]); !ok {
			others++
			continue
		}
		list = append(list, fmt.Sprintf("line %d, %s: %s", c.line, c, c.Run.unfit(argv)))
	}
	if others > 0 || len(list) == 0 {
		list = append(list, fmt.Sprintf("entries of commands that name other programs: %d", others))
	}
	return list
}
