package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spoke's liveness is a multiple of the interval that it announces itself.
const (
	warnAfter  = 3
	staleAfter = 10
	deadAfter  = 30
)

// A SpokeView is a spoke as an operator sees it.
type SpokeView struct {
	store.Connection
	Linked       bool              `json:"linked"`
	LinkedSince  *time.Time        `json:"linked_since,omitempty"`
	Remote       string            `json:"remote,omitempty"`
	Liveness     string            `json:"liveness"` // alive, late, stale, dead, never seen
	LastSeen     *time.Time        `json:"last_seen,omitempty"`
	ClockOffset  string            `json:"clock_offset,omitempty"`
	Slots        int               `json:"slots"`
	Running      int               `json:"running"`
	Queued       int               `json:"queued"`
	Capabilities []string          `json:"capabilities,omitempty"`
	KillLevel    string            `json:"kill_level,omitempty"`
	Version      string            `json:"version,omitempty"`
	Limited      bool              `json:"limited,omitempty"` // it sends more than it may
	Differs      string            `json:"differs,omitempty"` // why nothing is relayed: one side was restored from a backup
	Says         commands.LinkView `json:"peer_says"`         // what the spoke says about the connection
	Unconfirmed  int               `json:"unconfirmed"`       // messages to it that its database has not confirmed
}

// Spokes returns every connection with what is known of its spoke now.
func (h *Hub) Spokes(ctx context.Context) ([]SpokeView, error) {
	open, err := h.DB.OutboxCounts(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	list := make([]SpokeView, 0)
	for _, s := range h.board.Statuses(store.Commands) {
		v := viewOfSpoke(s)
		v.Unconfirmed = open[s.ID]
		list = append(list, v)
	}
	return list, nil
}

func viewOfSpoke(s federation.Status) SpokeView {
	v := SpokeView{Connection: s.Connection, Liveness: "never seen", Linked: s.Linked, Limited: s.Limited, Differs: s.Differs}
	if s.Linked {
		v.LinkedSince, v.Remote = &s.Since, s.Remote
	}
	b := s.Beat
	if b == nil {
		return v
	}
	v.Says = b.Body.Link
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
func leastLoaded(spokes []federation.Status, capabilities []string) (federation.Status, error) {
	var best *federation.Status
	bestLoad := 0.0
	var why []string
	for i, p := range spokes {
		v := viewOfSpoke(p)
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
			best, bestLoad = &spokes[i], load
		}
	}
	if best != nil {
		return *best, nil
	}
	if len(why) == 0 {
		why = []string{"no spoke is connected"}
	}
	return federation.Status{}, commands.Refuse(commands.NoSpoke, "no spoke can run this now: %s", strings.Join(why, "; ")).
		Hinting("name one with --spoke NAME to queue it there until it is back")
}
