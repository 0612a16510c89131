package federation

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spawnmesh/spawnmesh/signing"
)

// A Rate bounds what one peer may send. What is above it waits in the peer's own
// outbox and takes nothing from others.
type Rate struct {
	Messages float64 // per second; 0 means 5,000
	Bytes    float64 // per second; 0 means 32 MiB
	Burst    time.Duration
}

// maxStrikes is how many messages per minute that are not authentic suspend a
// connection.
const maxStrikes = 20

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

// strikes counts what a peer sent that is not authentic, by minute and code. The
// first ones of a minute are audited as they are, what follows as a number: what
// a peer can make us write is bounded.
type strikes struct {
	mu     sync.Mutex // guards the rest
	minute int64
	total  int
	untold map[signing.Code]int // beyond the first ones
}

// A strike is what one message that is not authentic leads to.
type strike struct {
	tell    bool                 // it is audited as it is
	suspend bool                 // the connection has had enough of them
	before  map[signing.Code]int // what was not told of a minute that has passed, once
}

// struck counts one more.
func (s *strikes) struck(code signing.Code, now time.Time) (x strike) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.before = s.turn(now)
	s.total++
	x.tell, x.suspend = s.total <= maxStrikes, s.total == maxStrikes
	if !x.tell {
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
		s.minute, s.untold, s.total = minute, map[signing.Code]int{}, 0
	}
	return before
}
