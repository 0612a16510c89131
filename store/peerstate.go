package store

import (
	"context"

	"github.com/spawnmesh/spawnmesh/signing"
)

// A PeerState is the state of a connection on the peer's side, as the peer says.
type PeerState struct {
	State  ConnState
	By     string // who decided it
	Reason string
}

// String is the state in one line, "active" without more.
func (s PeerState) String() string {
	if s.State == Active {
		return string(s.State)
	}
	return string(s.State) + " by " + s.By + ": " + s.Reason
}

// NotePeerState notes what the peer of c says of the connection, and audits it where that
// is another state than the one noted before. It reports whether it was.
func (db *DB) NotePeerState(ctx context.Context, c Connection, kid signing.KeyID, s PeerState) (changed bool, err error) {
	err = db.Tx(ctx, "noting what the peer says of the connection", func(ctx context.Context, tx *Tx) error {
		if err := tx.Speaks(ctx, Speaker{c.ID, kid}); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `UPDATE sequences SET peer_state = $2 WHERE conn = $1 AND peer_state <> $2`, c.ID, s.String())
		if changed = tag.RowsAffected() == 1; err != nil || !changed {
			return err
		}
		tx.Audit(AuditRow{Actor: string(c.Peer), Action: "peer." + string(s.State), Object: c.Name, Why: s.Reason, Conn: c.ID})
		return nil
	})
	return changed, err
}
