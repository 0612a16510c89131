package store

import (
	"github.com/spawnmesh/spawnmesh/commands"
)

// TaskOf returns the task that a body is about, "" for none.
func TaskOf(b commands.Body) string {
	switch b := b.(type) {
	case *commands.Spawn:
		return b.Task
	case *commands.Status:
		return b.Task
	case *commands.Kill:
		return b.Task
	case *commands.Accepted:
		return b.Task
	case *commands.RefusedBody:
		return b.Task
	case *commands.Started:
		return b.Task
	case *commands.Ended:
		return b.Task
	case *commands.Killed:
		return b.Task
	case *commands.TaskState:
		return b.Task
	case *commands.Result:
		return b.Task
	}
	return ""
}
