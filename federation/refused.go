package federation

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// keysRefused is what it means that a peer has refused a key set.
const keysRefused = "it does not know the new one, and still trusts those before"

// noteRefusedReports notes, once each, which reports of this instance the peer has stored and
// refused: they are confirmed, and have had no effect there.
func (x *Exchange) noteRefusedReports(ctx context.Context, p *Peer, kid signing.KeyID, list []commands.RefusedReport) error {
	x.mu.Lock()
	known := len(list) == 0 || slices.Equal(list, x.refusedHeard)
	x.mu.Unlock()
	if known {
		return nil
	}
	news, err := x.board.DB.NoteRefused(ctx, store.Speaker{Conn: p.ID, Key: kid}, list)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.refusedHeard = list
	x.mu.Unlock()
	var rows []store.AuditRow
	for _, r := range news {
		tell := x.refusals.room(time.Now()) > 0
		counted := x.refusals.count(signing.Code(r.Code), store.None, tell, time.Now())
		rows = append(rows, countRows(p, counted.before)...)
		switch {
		case r.Kind == string(commands.KeySetKind) && r.Code == string(signing.KeySetVersion): // it has these keys already
		case tell && r.Kind == string(commands.KeySetKind):
			x.log.WarnContext(ctx, "the peer has refused the newest keys of this instance: "+keysRefused, "seq", r.Seq, "code", r.Code, "next", x.board.line("keys", "rotate"))
			rows = append(rows, store.AuditRow{Actor: string(p.Peer), Action: "keys.refused_by_peer", Object: p.Name, Code: r.Code, Why: keysRefused, Conn: p.ID})
		case tell:
			x.log.WarnContext(ctx, "the peer has refused a report of this instance", "seq", r.Seq, "code", r.Code)
			rows = append(rows, store.AuditRow{Actor: string(p.Peer), Action: "report.refused_by_peer", Code: r.Code, Conn: p.ID})
		}
	}
	if slices.ContainsFunc(news, func(r store.RefusedReport) bool { return r.Kind == string(commands.KeySetKind) }) {
		x.board.changed()
	}
	if len(rows) == 0 {
		return nil
	}
	return x.board.DB.Audit(ctx, rows...)
}
