package node

import (
	"context"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// What is stored is signed with the time of the database, and what comes is judged by that of this process. Where the two
// differ by more than signing.Skew, one side refuses what the other signs.
const (
	clockMost  = 5 * time.Second // how far they may differ
	clockEvery = time.Minute     // how often that is looked at
)

// checkClock looks how far the clock of the database is from that of this process.
func (n *Node) checkClock(ctx context.Context) control.Check {
	offset, err := n.Instance.DB.Offset(ctx)
	if err == nil {
		err = clocksDiffer(offset)
	}
	return control.NewCheck("clock of the database", err)
}

// clocksDiffer is nil for clocks that are near enough.
func clocksDiffer(offset time.Duration) error {
	if offset.Abs() <= clockMost {
		return nil
	}
	which := "ahead of"
	if offset < 0 {
		which = "behind"
	}
	return fmt.Errorf("it is %s %s that of this instance: orders and reports are signed by it, and from 2m on refused by one side or the other; set the clock of the host that is wrong", offset.Abs().Round(time.Second), which)
}

// watchClock says once in the log that the clocks differ, and once that they do no more.
func (n *Node) watchClock(ctx context.Context) error {
	for said := false; ; {
		offset, err := n.Instance.DB.Offset(ctx)
		if wrong := clocksDiffer(offset); err == nil && (wrong != nil) != said {
			if said = wrong != nil; said {
				n.Log.WarnContext(ctx, "the clock of the database differs from that of this instance", "why", wrong)
			} else {
				n.Log.InfoContext(ctx, "the clock of the database is that of this instance again")
			}
		}
		if wait.For(ctx, clockEvery) != nil {
			return nil
		}
	}
}
