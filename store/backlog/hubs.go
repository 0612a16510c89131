package backlog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ForHubs is what hubs are told of how their agents stand here, besides each agent.
type ForHubs struct {
	Waiting map[string]int // how many agents of each connection stand ready, up to [MaxWaiting]; none: 0
	Held    *time.Time     // since when nothing is claimed of the lane of agents: it is paused, or disabled
	Limited int            // accounts that have met a limit of their provider, and wait
}

// MaxWaiting is up to where agents that stand ready are counted for one queue of a connection.
const MaxWaiting = 1000

// maxWaitingClasses is in how many of these queues they are counted.
const maxWaitingClasses = 1000

// ForHubs counts with a bound, and reads no task.
func (b *Backlog) ForHubs(ctx context.Context) (f ForHubs, err error) {
	err = b.db.Read(ctx, "looking at what hubs are told", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, statement("for_hubs"), MainWorkspace, DefaultLane, MaxWaiting, maxWaitingClasses).Scan(&f.Waiting, &f.Held, &f.Limited)
	})
	return f, err
}
