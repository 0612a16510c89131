package federation

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

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
		counted := x.refusals.count(r.Code, store.None, tell, time.Now())
		rows = append(rows, countRows(p, counted.before)...)
		if tell {
			x.log.WarnContext(ctx, "the peer has refused a report of this instance", "seq", r.Seq, "code", r.Code)
			rows = append(rows, store.AuditRow{Actor: string(p.Peer), Action: "report.refused_by_peer", Code: string(r.Code), Conn: p.ID})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return x.board.DB.Audit(ctx, rows...)
}
