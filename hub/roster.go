package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spoke's liveness is a multiple of the interval that it announces itself.
const (
	warnAfter  = 3
	staleAfter = 10
	deadAfter  = 30
)

// roster is the last heartbeat of each connection.
type roster struct {
	mu    sync.Mutex // guards beats and dirty
	beats map[string]store.Beat
	dirty map[string]bool
}

// A SpokeView is a spoke as an operator sees it.
type SpokeView struct {
	store.Connection
	Linked       bool       `json:"linked"`
	LinkedSince  *time.Time `json:"linked_since,omitempty"`
	Remote       string     `json:"remote,omitempty"`
	Liveness     string     `json:"liveness"` // alive, late, stale, dead, never seen
	LastSeen     *time.Time `json:"last_seen,omitempty"`
	ClockOffset  string     `json:"clock_offset,omitempty"`
	Slots        int        `json:"slots"`
	Running      int        `json:"running"`
	Queued       int        `json:"queued"`
	Capabilities []string   `json:"capabilities,omitempty"`
	KillLevel    string     `json:"kill_level,omitempty"`
	Version      string     `json:"version,omitempty"`
	Unconfirmed  int        `json:"unconfirmed"` // messages to it that its database has not confirmed
}

// beat takes in one heartbeat. Only a newer one than the last counts: an old
// one that somebody replays says nothing and gets no answer.
func (h *Hub) beat(ctx context.Context, from string, wire []byte) (answer []byte) {
	o := h.open(from, wire)
	b, ok := o.in.Body.(*commands.Heartbeat)
	if o.bad != nil || !ok {
		h.refuseBeat(ctx, from, o)
		return nil
	}
	issued := time.UnixMilli(o.in.Header.Iat)
	now := time.Now()
	h.roster.mu.Lock()
	defer h.roster.mu.Unlock()
	last, seen := h.roster.beats[o.in.Conn]
	if seen && !issued.After(last.At.Add(last.Offset)) {
		return nil
	}
	h.roster.beats[o.in.Conn] = store.Beat{Conn: o.in.Conn, At: now, Offset: issued.Sub(now), Body: *b}
	if h.roster.dirty == nil {
		h.roster.dirty = map[string]bool{}
	}
	h.roster.dirty[o.in.Conn] = true
	return []byte("{}")
}

// refuseBeat audits what came in place of a heartbeat, or a heartbeat of a clock
// that is far off.
func (h *Hub) refuseBeat(ctx context.Context, from string, o opening) {
	row := o.bad
	if row == nil {
		row = &store.AuditRow{Actor: from, Code: string(signing.HdrField), Why: "this is not a heartbeat", Conn: o.in.Conn, Message: o.in.Header.ID}
		if o.in.Refusal != nil {
			row.Code, row.Why = string(o.in.Refusal.Code), o.in.Refusal.Why
		}
	}
	row.Action = "heartbeat.refused"
	if err := h.DB.Audit(ctx, *row); err != nil && ctx.Err() == nil {
		h.Log.ErrorContext(ctx, "auditing a refused heartbeat", "err", err)
	}
	if o.bad != nil {
		h.struck(ctx, from)
	}
}

// saveBeats writes the newest beats to the database every few seconds, one row
// per spoke, whatever their number in between.
func (h *Hub) saveBeats(ctx context.Context) error {
	return every(ctx, 5*time.Second, func() {
		h.roster.mu.Lock()
		var list []store.Beat
		for conn := range h.roster.dirty {
			b := h.roster.beats[conn]
			b.Age = time.Since(b.At)
			list = append(list, b)
		}
		clear(h.roster.dirty)
		h.roster.mu.Unlock()
		if err := h.DB.SaveBeats(ctx, list); err != nil && ctx.Err() == nil {
			h.Log.ErrorContext(ctx, "saving heartbeats", "err", err)
		}
	})
}

// Spokes returns every connection with what is known of its spoke now.
func (h *Hub) Spokes(ctx context.Context) ([]SpokeView, error) {
	open, err := h.DB.OutboxCounts(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	list := make([]SpokeView, 0)
	for _, p := range h.peers.all() {
		v := h.view(p)
		v.Unconfirmed = open[p.ID]
		list = append(list, v)
	}
	return list, nil
}

func (h *Hub) view(p *peer) SpokeView {
	v := SpokeView{Connection: p.Connection, Liveness: "never seen"}
	for _, l := range h.fed.Peers() {
		if l.ID == string(p.Peer) && p.State == store.Active {
			v.Linked, v.LinkedSince, v.Remote = true, &l.Since, l.Remote
		}
	}
	h.roster.mu.Lock()
	b, ok := h.roster.beats[p.ID]
	h.roster.mu.Unlock()
	if !ok {
		return v
	}
	v.Liveness, v.LastSeen = liveness(time.Since(b.At), b.Body.IntervalMS), &b.At
	v.Slots, v.Queued, v.Running = b.Body.Slots, b.Body.Queued, b.Body.Running
	v.Capabilities, v.KillLevel, v.Version = b.Body.Capabilities, b.Body.KillLevel, b.Body.Version
	if off := b.Offset.Abs(); off > 2*time.Second {
		v.ClockOffset = b.Offset.Round(time.Second).String()
	}
	return v
}

func liveness(age time.Duration, intervalMS int64) string {
	interval := time.Duration(intervalMS) * time.Millisecond
	switch {
	case age < warnAfter*interval:
		return "alive"
	case age < staleAfter*interval:
		return "late"
	case age < deadAfter*interval:
		return "stale"
	}
	return "dead"
}

// leastLoaded picks the spoke with the most room among those that are on line
// and have the capabilities; the error says why each of them cannot.
func (h *Hub) leastLoaded(peers []*peer, capabilities []string) (*peer, error) {
	var best *peer
	bestLoad := 0.0
	var why []string
	for _, p := range peers {
		v := h.view(p)
		missing := slices.DeleteFunc(slices.Clone(capabilities), func(c string) bool { return slices.Contains(v.Capabilities, c) })
		switch {
		case !v.Linked:
			why = append(why, fmt.Sprintf("%s is not linked", p.Name))
			continue
		case v.Liveness != "alive" && v.Liveness != "late":
			why = append(why, fmt.Sprintf("%s is %s", p.Name, v.Liveness))
			continue
		case len(missing) > 0:
			why = append(why, fmt.Sprintf("%s lacks %s", p.Name, strings.Join(missing, ", ")))
			continue
		}
		load := float64(v.Running+v.Queued) / float64(max(v.Slots, 1))
		if best == nil || load < bestLoad {
			best, bestLoad = p, load
		}
	}
	if best != nil {
		return best, nil
	}
	if len(why) == 0 {
		why = []string{"no spoke is connected"}
	}
	return nil, commands.Refuse(commands.NoSpoke, "no spoke can run this now: %s", strings.Join(why, "; ")).
		Hinting("name one with --spoke NAME to queue it there until it is back")
}
