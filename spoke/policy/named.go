package policy

import (
	"path/filepath"

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

	program  string   // as it is named
	unopened []string // paths of those that cannot be opened
}

// OpenNamed opens what s names.
func (p *Policy) OpenNamed(s *commands.Spawn) *Named {
	n := &Named{}
	if s.Dir != "" {
		if n.Dir, n.NoDir = runtime.OpenDir(s.Dir); n.NoDir != nil {
			n.unopened = append(n.unopened, filepath.Clean(s.Dir))
		}
	}
	if argv := p.Exec(s, nil).Argv; len(argv) > 0 && filepath.IsAbs(argv[0]) {
		var err error
		if n.Program, err = place.Open(argv[0]); err != nil {
			n.unopened = append(n.unopened, filepath.Clean(argv[0]))
		}
		n.program = argv[0]
	}
	return n
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
