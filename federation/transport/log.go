package transport

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// serverLog writes what an embedded server says to a slog.Logger. Errors and
// warnings may be provoked from outside, so only so many are let through.
type serverLog struct {
	log *slog.Logger

	mu         sync.Mutex
	windowEnds time.Time
	written    int
	dropped    int
	last       string // that the server called fatal
}

const (
	logWindow = 10 * time.Second
	logBurst  = 20  // lines per window
	logLine   = 512 // bytes of one line
)

func newServerLog(log *slog.Logger) *serverLog { return &serverLog{log: log} }

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(clip(format, v)) }
func (l *serverLog) Debugf(format string, v ...any)  { l.log.Debug(clip(format, v)) }
func (l *serverLog) Tracef(string, ...any)           {}
func (l *serverLog) Warnf(format string, v ...any)   { l.limited(l.log.Warn, clip(format, v)) }
func (l *serverLog) Errorf(format string, v ...any)  { l.limited(l.log.Error, clip(format, v)) }

// Fatalf does not end the process. The server that said it does not get
// ready, and whoever starts it is told this.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = clip(format, v)
}

// fatal returns why the server cannot go on, or "".
func (l *serverLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func clip(format string, v []any) string {
	s := fmt.Sprintf(format, v...)
	return s[:min(len(s), logLine)]
}

// limited writes one line, unless the window has had its share. A peer that
// tries what it may not is a sign that its key is in other hands, so that is
// said in words of its own. Refused dials are not worth a line each: a peer
// that waits to be admitted makes one every few seconds.
func (l *serverLog) limited(write func(string, ...any), text string) {
	for _, usual := range []string{"authentication error", "TLS handshake error", "TLS Handshake First"} {
		if strings.Contains(text, usual) {
			l.log.Debug(text)
			return
		}
	}
	ok, dropped := l.allow(time.Now())
	if dropped > 0 {
		l.log.Warn("the message server said more than is written here", "lines", dropped)
	}
	switch {
	case !ok:
	case strings.Contains(text, "Violation"):
		l.log.Warn("a peer tried what it may not", "what", text)
	default:
		write("the message server reports", "what", text)
	}
}

// allow says whether a line may be written at now, and how many were dropped
// in the window that this one ends.
func (l *serverLog) allow(now time.Time) (ok bool, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.After(l.windowEnds) {
		dropped = l.dropped
		l.windowEnds, l.written, l.dropped = now.Add(logWindow), 0, 0
	}
	if l.written >= logBurst {
		l.dropped++
		return false, dropped
	}
	l.written++
	return true, dropped
}
