package federation

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Rate bounds what one peer may send. What is above it waits in the peer's own
// outbox and takes nothing from others.
type Rate struct {
	Messages float64 // per second; 0 means 5,000
	Bytes    float64 // per second; 0 means 32 MiB
	Burst    time.Duration
}

// maxRefusals is how many messages of a minute that are not authentic, or that an
// honest peer does not sign, suspend a connection. maxStray is the same for what
// an honest peer may have after a restore.
const maxRefusals, maxStray = 20, 1000

// meter holds one peer to its rate.
type meter struct {
	messages, bytes *rate.Limiter
}

func newMeter(r Rate) *meter {
	if r.Messages == 0 {
		r.Messages = 5000
	}
	if r.Bytes == 0 {
		r.Bytes = 32 << 20
	}
	if r.Burst == 0 {
		r.Burst = 2 * time.Second
	}
	burst := r.Burst.Seconds()
	return &meter{
		messages: rate.NewLimiter(rate.Limit(r.Messages), int(max(r.Messages*burst, float64(most.Messages)))),
		bytes:    rate.NewLimiter(rate.Limit(r.Bytes), int(max(r.Bytes*burst, float64(most.Bytes+256<<10)))),
	}
}

// wait returns when envelopes are within the rate. Before it waits it tells note how
// long that takes: so far the peer is above its rate.
func (m *meter) wait(ctx context.Context, envelopes [][]byte, note func(time.Duration)) error {
	bytes := 0
	for _, w := range envelopes {
		bytes += len(w)
	}
	now := time.Now()
	messages := m.messages.ReserveN(now, min(len(envelopes), m.messages.Burst()))
	volume := m.bytes.ReserveN(now, min(bytes, m.bytes.Burst()))
	delay := max(messages.DelayFrom(now), volume.DelayFrom(now))
	note(delay)
	err := wait.For(ctx, delay)
	if err != nil { // they come again, and count then
		messages.Cancel()
		volume.Cancel()
	}
	return err
}

// refusals counts the refused messages of a peer, by minute and code. The first
// maxRefusals of a minute have an audit row each, the rest one row per code with
// their number, so a peer causes a bounded number of audit rows, however its messages
// are signed. Of each refused message the inbox keeps its number and what guards
// against its repetition. Refusals that an honest peer does not have suspend the
// connection.
type refusals struct {
	mu     sync.Mutex // guards the rest
	minute int64
	told   int
	weight int                  // of all refusals: a stray one weighs 1
	untold map[signing.Code]int // beyond the first ones
}

// counted is what one more refused message leads to.
type counted struct {
	suspend bool                 // this one reached the number that suspends the connection
	before  map[signing.Code]int // at the first refusal of a minute: those of the minute before that have no audit row
}

// room is how many more refusals of this minute may have an audit row of their own.
func (s *refusals) room(now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Unix()/60 != s.minute {
		return maxRefusals
	}
	return max(maxRefusals-s.told, 0)
}

// count counts one more, which was told or not.
func (s *refusals) count(code signing.Code, fault store.Fault, told bool, now time.Time) (x counted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.before = s.rollMinute(now)
	was := s.weight
	switch fault {
	case store.Wrong:
		s.weight += maxStray / maxRefusals
	case store.Stray:
		s.weight++
	}
	x.suspend = was < maxStray && s.weight >= maxStray
	if told {
		s.told++
	} else {
		s.untold[code]++
	}
	return x
}

// takeUntold returns how many refusals of the last minute have no audit row of their
// own, and nil when it was asked for that minute before.
func (s *refusals) takeUntold(now time.Time) map[signing.Code]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rollMinute(now)
}

// rollMinute begins a new minute when its time has come. The caller holds mu.
func (s *refusals) rollMinute(now time.Time) (before map[signing.Code]int) {
	if minute := now.Unix() / 60; minute != s.minute {
		before = s.untold
		s.minute, s.untold, s.told, s.weight = minute, map[signing.Code]int{}, 0, 0
	}
	return before
}
