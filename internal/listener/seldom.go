package listener

import (
	"sync/atomic"

	"golang.org/x/time/rate"
)

// A seldom is a line of the log that anybody can cause: it comes at a rate, and counts the others.
type seldom struct {
	rate   *rate.Limiter
	unsaid atomic.Int64 // that were too many since the last line
}

func newSeldom(limit rate.Limit, burst int) *seldom {
	return &seldom{rate: rate.NewLimiter(limit, burst)}
}

// due reports whether the line is to be written now, and how many were not since the last.
func (s *seldom) due() (unsaid int64, now bool) {
	if !s.rate.Allow() {
		s.unsaid.Add(1)
		return 0, false
	}
	return s.unsaid.Swap(0), true
}
