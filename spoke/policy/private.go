package policy

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
)

// checkPrivate refuses paths by which the agents of a level would reach the data directory of
// the spoke: keys, policy and database are files of its own user, which agents without one of
// their own have too. With isolation none they reach it anyway. What a fault of this host keeps from being told is refused as well,
// and may be told later.
func (p *Policy) checkPrivate(level string, paths []string) error {
	if !p.sharesUser(level) {
		return nil
	}
	for _, path := range paths {
		in, err := below(path, p.dir)
		if err == nil && in {
			return fmt.Errorf("%s is the data directory of this spoke or in it, and agents have the user of the spoke here", path)
		}
		holds, fault := below(p.dir, path)
		if err = cmp.Or(err, fault); err != nil {
			return fmt.Errorf("looking whether %s leads to the data directory of this spoke: %w", path, err)
		}
		if holds {
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
		if err := p.checkPrivate(level, paths); err != nil && !hostfault.Is(err) { // else no agent starts: Paths asks again
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
	for _, c := range p.entries() {
		list = append(list, of(c.Settings)...)
	}
	return slices.DeleteFunc(list, func(path string) bool { return path == "" })
}

// below reports whether path is dir or below it. Both are without symbolic links; should dir itself
// be mounted at another place, that is the same. What is mounted from inside of dir is not found. The error is a fault of this host.
func below(path, dir string) (bool, error) {
	if under(path, dir) {
		return true, nil
	}
	is, err := os.Stat(dir)
	if err != nil {
		return false, faultOnly(err)
	}
	for at := path; ; at = filepath.Dir(at) {
		here, err := os.Stat(at)
		if err == nil && os.SameFile(here, is) {
			return true, nil
		}
		if err = faultOnly(err); err != nil || at == filepath.Dir(at) {
			return false, err
		}
	}
}

// faultOnly is err where that is a fault of this host, and nil where nothing is there, or nothing that this user may look at.
func faultOnly(err error) error {
	if hostfault.Is(err) {
		return err
	}
	return nil
}
