package spoke

import (
	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/isolation"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// checkLimits is what doctor says about what agents may take.
func (s *Spoke) checkLimits() []control.Check {
	return []control.Check{{Name: "limits", OK: true, Note: s.Policy.Now().Limits.InWords()}}
}

// checkKernel is what doctor says about how agents are ended and what the kernel holds of limits.
func (s *Spoke) checkKernel() []control.Check {
	users := commands.MeetsIsolation(s.isolation(), commands.IsolationUser)
	return []control.Check{{Name: "kill level", OK: true, Note: s.kernel.Kill()}, {Name: "limits held", OK: true, Note: s.kernel.Limits(users)}}
}

// counted is where the files of an agent count: in its directories and, of a user of its own,
// in those that everybody shares.
func (r *run) counted() supervisor.Counted {
	own := r.own()
	c := supervisor.Counted{Dirs: []string{own.Work, own.Temp, own.Home}}
	if r.user.ID != 0 {
		c.Shared = isolation.SharedDirs
	}
	return c
}

// limitsOf is what the policy lets an agent take.
func limitsOf(rules *policy.Policy) supervisor.Limits {
	l := rules.Limits
	return supervisor.Limits{Memory: rules.Memory(0), Pids: int64(rules.Pids(0)), CPU: l.CPU(), CPUs: l.MilliCPUs(), Files: l.Open(),
		Disk: l.DiskBytes(), Inodes: l.DiskFiles(), FileSize: l.FileBytes(),
		Written: l.Written(), Idle: l.Quiet()}
}
