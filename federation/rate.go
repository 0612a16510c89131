package federation

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

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

// maxStrikes is how many messages of a minute that are not authentic, or that an
// honest peer does not sign, suspend a connection. maxStray is the same for what
// an honest peer may have after a restore.
const maxStrikes, maxStray = 20, 1000

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

// wait returns when envelopes are within the rate. The time it took is how far the
// peer is above it.
func (m *meter) wait(ctx context.Context, envelopes [][]byte) (time.Duration, error) {
	bytes := 0
	for _, w := range envelopes {
		bytes += len(w)
	}
	began := time.Now()
	if err := m.messages.WaitN(ctx, min(len(envelopes), m.messages.Burst())); err != nil {
		return 0, err
	}
	err := m.bytes.WaitN(ctx, min(bytes, m.bytes.Burst()))
	return time.Since(began), err
}

// strikes counts what a peer sent that was refused, by minute and code. The first
// ones of a minute are audited as they are, what follows as a number; and where it
// tells of a peer that is not honest, the connection is suspended. So what is
// refused of a peer makes us write a bounded number of rows, however it is signed.
// What is stored of each is its number and what guards against its repetition.
type strikes struct {
	mu     sync.Mutex // guards the rest
	minute int64
	told   int
	weight int                  // of strikes, in strays
	untold map[signing.Code]int // beyond the first ones
}

// A strike is what one refused message leads to.
type strike struct {
	suspend bool                 // the connection has had enough of them
	before  map[signing.Code]int // what was not told of a minute that has passed, once
}

// room is how many more may be audited as they are in this minute.
func (s *strikes) room(now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Unix()/60 != s.minute {
		return maxStrikes
	}
	return max(maxStrikes-s.told, 0)
}

// struck counts one more, which was told or not.
func (s *strikes) struck(code signing.Code, fault store.Fault, told bool, now time.Time) (x strike) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.before = s.turn(now)
	was := s.weight
	switch fault {
	case store.Wrong:
		s.weight += maxStray / maxStrikes
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

// settle returns what was not told of a minute that has passed, once.
func (s *strikes) settle(now time.Time) map[signing.Code]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn(now)
}

// turn begins a new minute when its time has come. The caller holds mu.
func (s *strikes) turn(now time.Time) (before map[signing.Code]int) {
	if minute := now.Unix() / 60; minute != s.minute {
		before = s.untold
		s.minute, s.untold, s.told, s.weight = minute, map[signing.Code]int{}, 0, 0
	}
	return before
}
