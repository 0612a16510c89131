package spoke

import (
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// limitsOf is what the policy lets an agent take.
func limitsOf(rules *policy.Policy) supervisor.Limits {
	l := rules.Limits
	return supervisor.Limits{Memory: rules.Memory(0), Pids: int64(rules.Pids(0)), CPU: l.CPU(), CPUs: int64(l.CPUs * 1000), Files: l.OpenFiles}
}
