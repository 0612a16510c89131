package policy

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/place"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
)

// Named is what an order names on this host itself, opened once: what is judged is what its agent gets, whatever another
// agent puts at the same paths meanwhile.
type Named struct {
	Dir     *place.Place // to run in; nil = it names none, or NoDir
	NoDir   error        // why that cannot be opened, a [*supervisor.StartError]
	Program *place.Place // that runs, by its path; nil = it is looked for in PATH, or there is no such program
	Fault   error        // a fault of this host that keeps it from being opened, and so from being judged, a [*supervisor.StartError]; nil = there is none, or it says of what is not allowed that it is there

	// LinkFault is a fault of this host behind a symbolic link of the directory, nil = there is none. No hub is told of it, so at the door NoDir
	// counts, which says of the path alone; an order that was accepted waits for the fault to pass.
	LinkFault error

	entry     Command  // of commands, that allows it; the zero one unless matched
	matched   bool     // an entry allows it
	unmatched error    // a fault of this host that keeps it from being said which one that is
	program   string   // as it is named
	unopened  []string // paths of those that cannot be opened
}

// OpenNamed opens what s names.
func (p *Policy) OpenNamed(s *commands.Spawn) *Named {
	n := &Named{}
	if s.Dir != "" {
		if n.Dir, n.LinkFault, n.NoDir = p.openDir(s.Dir, runtime.OpenDir); n.NoDir != nil {
			n.unopened = append(n.unopened, filepath.Clean(s.Dir))
			n.note(n.NoDir, p.inDirectories(filepath.Clean(s.Dir)))
		}
	}
	if s.Runtime == commands.RuntimeExec {
		n.openProgram(p, s)
	}
	return n
}

// openProgram opens the program that runs, or looks for one that is named without a path.
func (n *Named) openProgram(p *Policy, s *commands.Spawn) {
	if n.entry, n.matched, n.unmatched = p.match(s.Argv); n.unmatched != nil {
		n.note(n.unmatched, true)
		return
	}
	e := p.ExecNamed(s, nil, n)
	switch {
	case len(e.Argv) == 0:
	case filepath.IsAbs(e.Argv[0]):
		var err error
		if n.Program, err = runtime.OpenProgram(e.Argv[0]); err != nil {
			n.unopened = append(n.unopened, filepath.Clean(e.Argv[0]))
			n.note(err, true) // Exec names none that is not allowed
		}
		n.program = e.Argv[0]
	case !strings.Contains(e.Argv[0], "/"):
		_, err := e.Program()
		n.note(err, true)
	}
}

// Account returns whose limits the order meets, "" where the entry that allows it names nobody.
func (n *Named) Account() string { return n.entry.Account }

// openDir opens the directory of an order with open. Of a fault that tells of a path only what is without links counts: an agent can make a link
// that leads from what is allowed to anything. A fault that does not count is returned as
// behind, unless the directory could be opened after all.
func (p *Policy) openDir(dir string, open func(string) (*place.Place, error)) (at *place.Place, behind, err error) {
	at, err = open(dir)
	fault, everywhere := runtime.OfHost(err)
	if !fault || everywhere || slices.Contains(p.Directories, anything) {
		return at, nil, err
	}
	behind = err
	if at, err = runtime.OpenDirect(dir); err == nil {
		behind = nil
	}
	return at, behind, err
}

// note keeps why something could not be opened, where that is a fault of this host. That it has room for nothing tells nothing of a
// path; any other fault tells that something is there, which no hub learns of a path that is not allowed.
func (n *Named) note(err error, allowed bool) {
	if fault, everywhere := runtime.OfHost(err); n.Fault == nil && fault && (everywhere || allowed) {
		n.Fault = err
	}
}

// paths are those of all that is named, without symbolic links. Of what cannot be opened it is the path as it was named:
// no agent gets what may be there later.
func (n *Named) paths() []string {
	list := n.unopened
	for _, p := range []*place.Place{n.Dir, n.Program} {
		if p != nil {
			list = append(list, p.Path())
		}
	}
	return list
}

// Close lets go of it. It may be called again.
func (n *Named) Close() {
	n.Dir.Close()
	n.Program.Close()
}
