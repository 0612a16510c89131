package supervisor

// A witness is what a spoke itself knows of an attempt whose shim is gone. The record
// in the directory may be the agent's, so it decides nothing that contradicts that.
type witness struct {
	began  bool // the agent was started
	killed bool // its kill was ordered, or may have been: the spoke knows less than its record
	over   bool // its time was over, or may have been
	broken bool // the shim did not end by itself: its record is not the last word
	whole  bool // the shim ended by itself, so its record is its own
}

// believes reports whether an attempt can have ended like that.
func (w witness) believes(o Outcome) bool {
	switch {
	case w.whole:
		return true
	case o == Killed:
		return w.killed
	case o == TimedOut:
		return w.over
	case o == NeverStarted, o == StartFailed:
		return !w.began && !w.broken
	case o == Exited, o == Signalled, o == Limited:
		return !w.broken
	}
	return true // an interruption, whatever it is called
}

// sift drops a record that cannot be true.
func (w witness) sift(e *Exit) (*Exit, error) {
	if e == nil || w.believes(e.Outcome) {
		return e, nil
	}
	return nil, spoilt("the exit record says %q, which contradicts what this spoke knows", e.Outcome)
}
