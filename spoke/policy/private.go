package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
)

// checkPrivate refuses paths by which the agents of a level would reach the data directory of
// the spoke: keys, policy and database are files of its own user, which agents without one of
// their own have too. With isolation none they reach it anyway.
func (p *Policy) checkPrivate(level string, paths []string) error {
	if !p.sharesUser(level) {
		return nil
	}
	for _, path := range paths {
		switch {
		case below(path, p.dir):
			return fmt.Errorf("%s is the data directory of this spoke or in it, and agents have the user of the spoke here", path)
		case below(p.dir, path):
			return fmt.Errorf("%s holds the data directory of this spoke, and agents have the user of the spoke here", path)
		}
	}
	return nil
}

// sharesUser reports whether agents of a level have the user of the spoke, and are kept from its
// files by their paths alone. Before the host was looked at, "", only root may have users for them.
func (p *Policy) sharesUser(level string) bool {
	switch {
	case p.dir == "" || level == commands.IsolationNone:
		return false
	case level == "":
		return os.Geteuid() != 0
	}
	return !commands.MeetsIsolation(level, commands.IsolationUser)
}

// exposed is an entry of the policy that opens the data directory. No level is at fault.
type exposed struct{ error }

func (e *exposed) Unwrap() error { return e.error }

// checkOwn is checkPrivate for what the policy itself opens to agents, whatever their order is.
func (p *Policy) checkOwn(level string) error {
	if !p.sharesUser(level) {
		return nil
	}
	for _, list := range p.opens() {
		paths, _ := p.resolve(list.paths)
		if err := p.checkPrivate(level, paths); err != nil {
			return &exposed{fmt.Errorf("%s of the policy: %w; name a directory beside it", list.name, err)}
		}
	}
	return nil
}

// listed are paths by what they stand under in the policy.
type listed struct {
	name  string
	paths []string
}

// opens is what the policy itself opens to agents.
func (p *Policy) opens() []listed {
	return []listed{{"read_paths", p.ReadPaths}, {"write_paths", p.WritePaths}, {"home", p.each(func(s Settings) []string { return []string{s.Home} })}, {"path", p.each(func(s Settings) []string { return filepath.SplitList(s.Path) })}}
}

// each collects something of the settings for all agents and of those of each entry.
func (p *Policy) each(of func(Settings) []string) []string {
	list := of(p.Settings)
	for _, c := range p.Commands {
		list = append(list, of(c.Settings)...)
	}
	return slices.DeleteFunc(list, func(path string) bool { return path == "" })
}

// below reports whether path is dir or below it. Both are without symbolic links; should dir itself
// be mounted at another place, that is the same. What is mounted from inside of dir is not found.
func below(path, dir string) bool {
	if under(path, dir) {
		return true
	}
	is, err := os.Stat(dir)
	if err != nil {
		return false
	}
	for at := path; ; at = filepath.Dir(at) {
		if here, err := os.Stat(at); err == nil && os.SameFile(here, is) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}
