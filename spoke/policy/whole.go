package policy

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
)

// Whole puts together what agents can get at where the policy in dir allows their orders,
// whichever those are.
func (p *Policy) Whole(dir string) Reach {
	s := &commands.Spawn{Runtime: commands.RuntimeExec}
	if !slices.Contains(p.Runtimes, s.Runtime) || len(p.entries()) == 0 {
		s.Runtime = commands.RuntimeNoop
		return p.Reach(dir, s)
	}
	level, err := p.LevelFor(s)
	r := p.reach(dir, s, level, p.entries()...)
	if err != nil {
		r.Confined = "no agent starts: " + err.Error()
	}
	var programs, shells []string
	for _, c := range p.entries() {
		programs = append(programs, c.String())
		if p.Shell(c) != "" {
			shells = append(shells, c.String())
		}
	}
	r.Program, r.Shell = some(programs), some(shells)
	if slices.ContainsFunc(p.Commands, Command.Any) {
		r.Program, r.Shell = "any command", "every command may run, a shell among them"
	}
	return r
}

// some names the first of many, and how many more there are.
func some(list []string) string {
	const most = 8
	if more := len(list) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), more)
	}
	return strings.Join(list, ", ")
}

// given are the variables that the host sets for agents by the first entry that fits, which is
// any of these, and the files that more of their values come from.
func (p *Policy) given(dir string, entries []Command) (names, files []string) {
	for _, c := range append([]Command{{}}, entries...) { // of all agents, then of each entry
		e := runtime.Exec{Host: map[string]string{}}
		p.Settings.apply(&e)
		c.Settings.apply(&e)
		names = slices.AppendSeq(names, maps.Keys(e.Host))
		for _, name := range []string{p.EnvFromFile, c.EnvFromFile} {
			if name != "" && !filepath.IsAbs(name) {
				name = filepath.Join(dir, name)
			}
			if name != "" && !slices.Contains(files, name) {
				files = append(files, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), files
}
