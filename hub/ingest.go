package hub

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/crash"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// maxStrikes is how many unauthentic messages a connection may send per minute
// before its link is suspended.
const maxStrikes = 20

// ingest stores a batch of reports in one transaction. It returns nil, and so
// lets the batch be acknowledged, only after that was committed; what could not
// be opened is audited and dropped.
func (h *Hub) ingest(ctx context.Context, reports []transport.Report) error {
	opened := h.openAll(reports)
	var batch []store.Incoming
	var logs []store.LogReport
	var bad []store.AuditRow
	for i, o := range opened {
		switch {
		case o.bad != nil:
			bad = append(bad, *o.bad)
			h.struck(ctx, reports[i].Peer)
		case o.log != nil:
			logs = append(logs, store.LogReport{Conn: o.in.Conn, Log: o.log})
		default:
			batch = append(batch, o.in)
		}
	}
	if len(bad) > 0 {
		if err := h.DB.Audit(ctx, bad...); err != nil {
			return err
		}
	}
	if len(logs) > 0 {
		tasks, err := h.DB.AddLogs(ctx, logs)
		if err != nil {
			return err
		}
		h.watch.notify(tasks)
	}
	if len(batch) == 0 {
		return nil
	}
	done, err := Ingest(ctx, h.DB, batch)
	if err != nil {
		return err
	}
	h.watch.notify(done.Tasks)
	h.watch.notify(tasksOf(batch))
	h.publish(ctx, done.Notes) // a lost note is sent again when its report comes again
	crash.Point("confirmed reports")
	return h.reloadIfQuarantined(ctx, done.Fates)
}

func tasksOf(batch []store.Incoming) []string {
	list := make([]string, 0, len(batch))
	for _, m := range batch {
		if t := store.TaskOf(m.Body); t != "" {
			list = append(list, t)
		}
	}
	return list
}

// Ingested says what a batch of reports changed.
type Ingested struct {
	Fates []store.Fate
	Tasks []string         // mirrors that were touched
	Notes []store.Outgoing // confirmations to send now; they may be lost
}

// Ingest stores a batch of receipts and results and moves the mirrors, in one
// transaction. What it stored, also what it could not use, is confirmed to its
// sender with one signed note per connection.
func Ingest(ctx context.Context, db *store.DB, batch []store.Incoming) (Ingested, error) {
	tasks := make([][]string, len(batch)) // by the first answer of the transaction that touched them
	done, err := db.TakeIn(ctx, "taking in reports", batch, func(ctx context.Context, tx *store.Tx, in *store.Intake) error {
		stored := map[string]*commands.Received{}
		var answers []int
		for i, f := range in.All() {
			tasks[i] = nil
			if f.Code == "" || f.Code == signing.ReplaySame {
				confirm(stored, batch[i])
			}
			if f.Code == "" && judge(in, i, batch[i]) {
				answers = append(answers, i)
			}
		}
		for conn, list := range stored {
			tx.Send(store.Draft{Conn: conn, Lane: store.LaneCtl, Body: list, Note: true})
		}
		if len(answers) == 0 {
			return nil
		}
		var err error
		tasks[answers[0]], err = in.MoveMirrors(ctx, answers)
		return err
	})
	return Ingested{done.Fates, slices.Concat(tasks...), done.Notes}, err
}

func confirm(stored map[string]*commands.Received, m store.Incoming) {
	if stored[m.Conn] == nil {
		stored[m.Conn] = &commands.Received{}
	}
	stored[m.Conn].Messages = append(stored[m.Conn].Messages, commands.MessageRef{ID: m.Header.ID, SHA256: m.Digest.String()})
}

// judge closes the command that m answers: any answer proves that the other
// database has it. It refuses what is no answer.
func judge(in *store.Intake, i int, m store.Incoming) bool {
	switch {
	case m.Refusal != nil:
		in.Refuse(i, "report.refused", m.Refusal.Code, m.Refusal.Why)
		return false
	case m.Header.Re == nil:
		in.Refuse(i, "report.refused", signing.HdrField, "a spoke does not send "+m.Header.Kind)
		return false
	}
	in.Close(i, m.Header.Re.ID, m.Header.Re.SHA256)
	return true
}

// opening is what became of one report: a message, a piece of log, or an audit
// row about something that is neither.
type opening struct {
	in  store.Incoming
	log *commands.Log
	bad *store.AuditRow
}

// openAll verifies signatures on every core: they are most of the work.
func (h *Hub) openAll(reports []transport.Report) []opening {
	out := make([]opening, len(reports))
	var wg sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), len(reports))
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(reports); i += workers {
				out[i] = h.open(reports[i].Peer, reports[i].Body)
			}
		})
	}
	wg.Wait()
	return out
}

// open checks one report of the peer that the message server says it is from.
func (h *Hub) open(from string, wire []byte) opening {
	p := h.peers.byPeer(from)
	if p == nil {
		return opening{bad: h.peers.farewell(from)}
	}
	in := store.Incoming{Conn: p.ID, Wire: wire}
	o, err := p.verifier.Open(wire, time.Now())
	if err == nil {
		in.Header, in.Digest = o.Header(), o.Digest()
		var c commands.Command
		if c, err = commands.Parse(o); err == nil {
			in.Body = c.Body
			l, _ := c.Body.(*commands.Log)
			return opening{in: in, log: l}
		}
	}
	if r, ok := errors.AsType[*signing.Rejected](err); ok && r.Header == nil && in.Header.ID == "" {
		return opening{bad: &store.AuditRow{Actor: from, Action: "report.refused", Code: string(r.Code), Why: r.Why, Conn: p.ID}}
	} else if ok && r.Header != nil {
		in.Header, in.Digest = *r.Header, r.Digest
	}
	in.Refusal = commands.Refuse(commands.CodeOf(err), "%v", err)
	return opening{in: in}
}

// strikes counts unauthentic messages per peer and minute.
type strikes struct {
	mu     sync.Mutex // guards counts and minute
	minute int64
	counts map[string]int
}

// struck counts one more and suspends the connection that sends too many.
func (h *Hub) struck(ctx context.Context, from string) {
	h.strike.mu.Lock()
	if now := time.Now().Unix() / 60; now != h.strike.minute {
		h.strike.minute = now
		clear(h.strike.counts)
	}
	h.strike.counts[from]++
	n := h.strike.counts[from]
	h.strike.mu.Unlock()
	p := h.peers.byPeer(from)
	if n < maxStrikes || p == nil || p.State != store.Active {
		return
	}
	if _, err := h.setState(ctx, p.ID, store.Suspended, "too many messages that are not authentic", "self"); err != nil {
		h.Log.ErrorContext(ctx, "suspending a connection", "name", p.Name, "err", err)
	}
}

// reloadIfQuarantined follows what the transaction decided: a peer that used a
// sequence number twice is suspended, and its link must go.
func (h *Hub) reloadIfQuarantined(ctx context.Context, fates []store.Fate) error {
	for _, f := range fates {
		if f.Code != signing.SeqReuse {
			continue
		}
		if err := h.reload(ctx); err != nil {
			return err
		}
		for _, p := range h.peers.all() {
			if p.State == store.Suspended {
				h.fed.Cut(string(p.Peer))
			}
		}
		return nil
	}
	return nil
}
