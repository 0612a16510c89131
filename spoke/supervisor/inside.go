package supervisor

import "github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"

// Inside reports whether a process is of an agent. What cannot be told counts as inside, and err says why.
func Inside(pid int) (inside bool, err error) { return tree.Inside(pid) }

// OfAnother reports whether a process is of another attempt than that with a marker. What cannot be told counts as one.
func OfAnother(pid int, marker string) bool {
	of, err := tree.AttemptOf(pid)
	return err != nil || of != "" && of != marker
}

// SeesProcesses says why [Inside] can tell nothing here.
func SeesProcesses() error { return tree.SeesProcesses() }
