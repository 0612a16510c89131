package door

import "time"

// Looks for answers: without news so often, and with news no more often than that.
const (
	lookAgain = 5 * time.Second
	lookPause = 500 * time.Millisecond
)

// A look at the open questions of a task serves all who wait at its door for answers.
type look struct {
	done chan struct{}   // closed once what follows is known
	open map[string]bool // by their ids
	err  error
	next *look
}

func newLook() *look { return &look{done: make(chan struct{})} }

// beginWaiting returns the look that comes next, and what is to be called when nobody waits for it any more.
func (d *Door) beginWaiting() (next *look, leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits++
	if !d.watching {
		d.watching = true
		go d.lookAround()
	}
	return d.look, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.waits--
	}
}

// lookAround looks for answers while somebody waits for one.
func (d *Door) lookAround() {
	for d.ctx.Err() == nil {
		news, began := d.room.News(), time.Now()
		open, err := d.room.Backlog.Unanswered(d.ctx, d.room.Fence)
		if !d.looked(open, err) {
			return
		}
		select {
		case <-d.ctx.Done():
		case <-news:
		case <-time.After(lookAgain):
		}
		select { // of many changes few are answers: they are looked at together
		case <-d.ctx.Done():
		case <-time.After(lookPause - time.Since(began)):
		}
	}
}

// looked tells those who wait what was seen, and whether to look again.
func (d *Door) looked(open []string, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.look
	l.open, l.err, l.next = map[string]bool{}, err, newLook()
	for _, id := range open {
		l.open[id] = true
	}
	d.look = l.next
	close(l.done)
	d.watching = d.waits > 0
	return d.watching
}
