package spoke

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/store"
)

// drain waits for running agents, but not longer than Drain or Hurry, and says
// what it waits for: at once, and again when that has changed.
func (s *Spoke) drain() {
	ended := make(chan struct{})
	go func() {
		s.attempts.Wait()
		close(ended)
	}()
	if s.awaitAgents(ended) {
		return
	}
	s.live.abandon()
	<-ended
}

// awaitAgents reports whether all agents ended before it was time to leave. For what only waits for its hub no time is spent.
func (s *Spoke) awaitAgents(ended <-chan struct{}) bool {
	enough, look := time.After(s.Drain), time.NewTicker(time.Second)
	defer look.Stop()
	for said := 0; ; {
		if s.live.onlyAwaits() {
			return false
		}
		if n := s.live.count(); n > 0 && n != said {
			said = n
			s.Log.Info("stopping: waiting for running agents; a second signal leaves them to their shims at once, and the next start adopts them",
				"agents", n, "ids", s.live.some(10), "at_most", s.Drain)
		}
		select {
		case <-ended:
			return true
		case <-s.Hurry:
			return false
		case <-enough:
			return false
		case <-look.C:
		}
	}
}

// lastWords is how long a stop waits for hubs that are linked to confirm what it
// told them of its last agents. What they do not confirm waits in the database.
const lastWords = 2 * time.Second

// sayLast waits until every linked hub has confirmed what it was told, and says which have not in their time.
func (s *Spoke) sayLast(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, lastWords)
	defer done()
	var waits []string
	for {
		open, err := s.DB.OutboxCounts(ctx)
		if err == nil {
			waits = s.unconfirmed(open)
		}
		if err != nil && ctx.Err() == nil || len(waits) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			s.Log.InfoContext(ctx, "stopping: hubs have not confirmed yet what they were told; it is told again after the next start", "hubs", waits)
			return
		case <-s.Hurry:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// unconfirmed names the linked hubs for which messages are open, as counted by connection. One without a link confirms nothing.
func (s *Spoke) unconfirmed(open map[string]int) (names []string) {
	for _, c := range s.board.Statuses(store.Obeys) {
		if c.Linked && open[c.ID] > 0 {
			names = append(names, c.Name)
		}
	}
	return names
}

// some names up to most of the live attempts' tasks, oldest first.
func (l *live) some(most int) (ids []string) {
	for _, a := range l.list() {
		ids = append(ids, a.fence.Task)
	}
	slices.Sort(ids)
	if len(ids) > most {
		ids = append(ids[:most], "...")
	}
	return ids
}
