package hub

import (
	"context"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/output"
	"github.com/spawnmesh/spawnmesh/store"
)

// A LogLine is one value of an agent's output: a piece of it, what a reader
// who follows it waits for, or what is missing at its end.
type LogLine struct {
	output.Piece
	Waiting *Unlinked `json:"waiting,omitempty"`
	Missing *Missing  `json:"missing,omitempty"`
}

// Missing says that the result of an agent tells of output that has not arrived. The
// spoke's own marks of what it did not keep come with the end of a stream; where that
// will not arrive, they are taken from the result.
type Missing struct {
	Spoke   string         `json:"spoke"`
	Stream  string         `json:"stream"`
	Attempt int            `json:"attempt"`
	From    int64          `json:"from"`            // byte of the stream as it was kept
	Bytes   int64          `json:"bytes"`           // 0 with Never alone: nobody knows here
	Never   bool           `json:"never,omitempty"` // the connection has ended: it will not arrive
	Gaps    []commands.Gap `json:"gaps,omitempty"`  // what the spoke did not keep; only with Never
	Cut     bool           `json:"cut,omitempty"`   // nor is it known how much the agent wrote; only with Never
}

// Unlinked says that a spoke is not linked, and the rest of the output with it.
type Unlinked struct {
	Spoke     string     `json:"spoke"`
	Suspended bool       `json:"suspended,omitempty"` // and it will not be before somebody resumes the connection
	Until     *time.Time `json:"until,omitempty"`     // when the last of what is here arrived; nil: nothing is
}

// Logs sends an agent's output, oldest first, from behind the piece after. With follow it
// goes on until the agent has ended and all of its output is here, or known to be lost.
func (h *Hub) Logs(ctx context.Context, task string, after int64, follow bool, to Reader) error {
	read := reading{hub: h, task: task, at: output.Cursor{After: after}, to: to}
	return read.run(ctx, follow)
}

// A Reader takes a log.
type Reader struct {
	Send  func(LogLine) error
	Flush func() error // it is called when nothing more is sent for now
}

// reading is one reader of a log.
type reading struct {
	hub   *Hub
	task  string
	at    output.Cursor
	told  *Unlinked // what was said last of a spoke that is not linked; nil: it was linked since
	asked time.Time // when the spoke was asked for the rest; first, when the agent was seen to have ended
	tail  int64     // of the log when it was asked last
	vain  int       // how often it was asked since without any coming
	lacks []Missing // as it was looked at last
	to    Reader
}

func (r *reading) run(ctx context.Context, follow bool) error {
	news := r.hub.watch.add(r.task, false)
	defer r.hub.watch.remove(r.task, news)
	for {
		complete, err := r.once(ctx)
		if err == nil && (complete || !follow) {
			err = r.sayMissing()
			complete = true
		}
		if flushed := r.to.Flush(); err == nil {
			err = flushed
		}
		if complete || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		case <-time.After(time.Second):
		}
	}
}

// once sends what is new, and reports whether that was the last of it. The agent's
// end is looked at first: what is here afterwards is all then.
func (r *reading) once(ctx context.Context) (complete bool, err error) {
	list, err := r.hub.DB.FindMirrors(ctx, r.task)
	if err != nil {
		return false, err
	}
	log, err := r.pieces(ctx)
	if err != nil || len(list) != 1 {
		return true, err
	}
	from, known := r.hub.board.Status(list[0].Conn)
	over := !known || from.State.Ended()
	r.lacks = missing(list[0], log, over)
	if list[0].State.Terminal() && (over || len(r.lacks) == 0) {
		return true, nil
	}
	if r.ask(ctx, list[0], log) {
		return true, nil
	}
	if !known || from.Linked {
		r.told = nil
		return false, nil
	}
	return false, r.sayUnlinked(Unlinked{Spoke: from.Name, Suspended: from.State == store.Suspended}, log)
}

// sayUnlinked says once why nothing comes.
func (r *reading) sayUnlinked(w Unlinked, log *store.Log) error {
	if r.told != nil && r.told.Suspended == w.Suspended {
		return nil
	}
	if r.told = &w; log.Tail > 0 {
		w.Until = &log.At
	}
	return r.to.Send(LogLine{Waiting: &w})
}

// pieces sends what is new, and returns the log as it was read last: again where some of it was
// dropped before it could be sent.
func (r *reading) pieces(ctx context.Context) (*store.Log, error) {
	for {
		log, err := r.hub.DB.Log(ctx, r.task)
		if err != nil {
			return nil, err
		}
		done, err := r.hub.output.Read(ctx, log, &r.at, func(p output.Piece) error { return r.to.Send(LogLine{Piece: p}) })
		if done || err != nil {
			return log, err
		}
	}
}

// waitMost is how often a reader asks for output while nothing of it comes, before
// the log ends without it.
const waitMost = 12

// ask asks the spoke for the output that a result tells of, of each attempt, and
// reports whether that was done in vain for too long. The spoke has sent all of it
// already where this hub was restored from a backup.
func (r *reading) ask(ctx context.Context, m store.Mirror, log *store.Log) (vain bool) {
	now := time.Now()
	if !m.State.Terminal() || now.Sub(r.asked) < askAgain {
		return false
	}
	first := r.asked.IsZero()
	r.asked = now
	if first || !r.hub.agrees(m.Conn) {
		return false
	}
	var list []store.Lack
	for attempt := 1; attempt <= m.Attempt; attempt++ {
		for _, name := range commands.Streams {
			if st := log.Stream(attempt, name); st.Ended == nil {
				list = append(list, store.Lack{Conn: m.Conn, Task: m.Task, Attempt: attempt, Stream: name, Through: st.Through})
			}
		}
	}
	r.hub.askFor(ctx, list)
	return r.inVain(log.Tail)
}

// inVain counts one more request while the log ends at tail, and reports whether
// that were too many since anything came.
func (r *reading) inVain(tail int64) bool {
	if r.vain++; tail != r.tail {
		r.vain, r.tail = 0, tail
	}
	return r.vain >= waitMost
}

// sayMissing ends a log with what is not in it.
func (r *reading) sayMissing() error {
	for _, m := range r.lacks {
		if err := r.to.Send(LogLine{Missing: &m}); err != nil {
			return err
		}
	}
	return nil
}

// missing returns what has not arrived of a task's output although its result tells
// of it: of each stream of its last attempt there is neither as much as the result
// names nor the end. Output of earlier attempts came before. Nothing comes over a
// connection that is over, and without a result nobody knows here how much there was.
func missing(m store.Mirror, log *store.Log, over bool) (list []Missing) {
	res, ended := commands.ReadResult(m.Result)
	ended = ended && res.Outcome != ""
	if !ended && (!over || m.StartedAt == nil) {
		return nil
	}
	attempt := m.Attempt
	if ended {
		attempt = res.Attempt
	}
	for _, stream := range commands.Streams {
		told := map[string]commands.Output{"stdout": res.Stdout, "stderr": res.Stderr}[stream]
		st := log.Stream(attempt, stream)
		marks := len(told.Gaps) > 0 || told.Cut // they come with the end
		if st.Ended != nil || ended && st.Through >= told.Size && !marks {
			continue
		}
		lack := Missing{Spoke: m.Spoke, Stream: stream, Attempt: attempt, From: st.Through, Bytes: max(0, told.Size-st.Through)}
		if over {
			lack.Never, lack.Gaps, lack.Cut = true, told.Gaps, told.Cut
		}
		list = append(list, lack)
	}
	return list
}

// outputOf returns what has arrived of a task's output.
func (h *Hub) outputOf(ctx context.Context, task string) ([]store.LogStream, error) {
	log, err := h.DB.Log(ctx, task)
	if err != nil {
		return nil, err
	}
	return log.Streams, nil
}
