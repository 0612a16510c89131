package backlog

import "time"

// Step makes the last look one of a clock that was set by so much since.
func (l *Look) Step(by time.Duration) {
	l.now = l.now.Add(-by)
	for i := range l.seen {
		l.seen[i].due, l.seen[i].put = l.seen[i].due.Add(-by), l.seen[i].put.Add(-by)
	}
}

// Long makes every look long that takes so long.
func (l *Look) Long(d time.Duration) { l.long = d }

// StatementForTest is a statement by its name.
var StatementForTest = statement

// LookFor bounds how long one transaction looks for what has begun.
func LookFor(b *Backlog, d time.Duration) { b.begun.most = d }
