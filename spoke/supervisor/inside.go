package supervisor

import "github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"

// Inside reports whether a process is of an agent. What cannot be told counts as inside.
func Inside(pid int) bool { return tree.Inside(pid) }

// SeesProcesses says why [Inside] can tell nothing here.
func SeesProcesses() error { return tree.SeesProcesses() }
