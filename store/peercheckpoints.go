package store

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
)

// A PeerCheckpoint is the newest checkpoint of a peer in one era.
type PeerCheckpoint struct {
	Conn, Peer string
	Checkpoint
	Public    ed25519.PublicKey // the identity key of the peer
	Received  time.Time
	Refused   string // a note that does not go on from it, and
	Why       string
	RefusedAt *time.Time // when there was one first
}

// KeepCheckpoint keeps what a peer shows of its audit, where proof says that it goes on from what is kept. A database
// that was restored begins a new era, which is audited. Anything else is refused, with the code [commands.AuditBroken]:
// the first such note of an era is kept as evidence, and news says that it is that one.
func (db *DB) KeepCheckpoint(ctx context.Context, conn Connection, c Checkpoint, proof []audittree.Hash) (news bool, err error) {
	var refused error
	err = db.Tx(ctx, "keeping a checkpoint of "+conn.Name, func(ctx context.Context, tx *Tx) error {
		news, refused = false, nil
		tx.TellNobody()
		kept, there, err := keptCheckpoint(ctx, tx, conn.ID)
		if err != nil {
			return err
		}
		if refused = goesOn(c.Checkpoint, kept.Checkpoint.Checkpoint, there, proof); refused == nil && there && c.Era > kept.Era {
			if refused, err = mayBeginAnew(ctx, tx, conn.ID); err != nil {
				return err
			}
		}
		if refused != nil {
			news = kept.Refused == ""
			return keepEvidence(ctx, tx, conn, kept, c.Note, refused)
		}
		if there && c.Era > kept.Era {
			tx.Audit(AuditRow{Actor: "peer:" + string(conn.Peer), Action: "peer.audit_restored", Object: conn.Name, Code: string(commands.Resync), Conn: conn.ID,
				Why: fmt.Sprintf("its database was restored from a backup; its audit had %d rows here and has %d now: what does not go on from those is kept apart", kept.Size, c.Size)})
		}
		_, err = tx.Exec(ctx, `INSERT INTO peer_checkpoints (conn, era, size, note) VALUES ($1, $2, $3, $4)
			ON CONFLICT (conn, era) DO UPDATE SET size = excluded.size, note = excluded.note, at = clock_timestamp()`, conn.ID, c.Era, c.Size, []byte(c.Note))
		return err
	})
	return news, errors.Join(err, refused)
}

// goesOn says why c does not go on from what is kept.
func goesOn(c, kept audittree.Checkpoint, there bool, proof []audittree.Hash) error {
	switch {
	case !there || c.Era > kept.Era:
		return nil
	case c.Era < kept.Era:
		return notTaken("the audit of the peer is of before its database was restored")
	case c.Size < kept.Size:
		return notTaken("the audit of the peer has %d rows, and had %d", c.Size, kept.Size)
	case !c.Extends(kept, proof):
		return notTaken("the audit of the peer has %d rows, of which the first %d are not those it had", c.Size, kept.Size)
	}
	return nil
}

// maxEras is how many eras of a peer are kept: each leaves a row here and one in the audit.
const maxEras = 100

// mayBeginAnew refuses one more era where a peer has had too many.
func mayBeginAnew(ctx context.Context, tx *Tx, conn string) (refused, err error) {
	eras := 0
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM peer_checkpoints WHERE conn = $1`, conn).Scan(&eras); err != nil || eras < maxEras {
		return nil, err
	}
	return notTaken("the peer says once more that its database was restored: that are more than %d times", maxEras), nil
}

func notTaken(format string, args ...any) error {
	return commands.Refuse(commands.AuditBroken, format, args...).Hinting("compare its audit with what is kept").Running("audit", "checkpoints")
}

func keepEvidence(ctx context.Context, tx *Tx, conn Connection, kept PeerCheckpoint, note string, why error) error {
	if kept.Refused != "" {
		return nil
	}
	tx.Audit(AuditRow{Actor: "peer:" + string(conn.Peer), Action: "peer.audit_refused", Object: conn.Name, Code: string(commands.AuditBroken), Conn: conn.ID, Why: why.Error()})
	_, err := tx.Exec(ctx, `UPDATE peer_checkpoints SET refused = $3, why = $4, refused_at = clock_timestamp() WHERE conn = $1 AND era = $2`, conn.ID, kept.Era, []byte(note), why.Error())
	return err
}

// keptCheckpoint holds the newest that is kept of a peer.
func keptCheckpoint(ctx context.Context, tx *Tx, conn string) (p PeerCheckpoint, there bool, err error) {
	rows, err := tx.Query(ctx, peerCheckpoints+` WHERE p.conn = $1 ORDER BY p.era DESC LIMIT 1 FOR UPDATE OF p`, conn)
	if err != nil {
		return p, false, err
	}
	p, err = pgx.CollectExactlyOneRow(rows, scanPeerCheckpoint)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, false, nil
	}
	return p, err == nil, err
}

const peerCheckpoints = `SELECT c.id::text, c.peer_name, p.note, p.at, coalesce(p.refused, ''), p.why, p.refused_at, k.pub
	FROM peer_checkpoints p JOIN connections c ON c.id = p.conn JOIN keys k ON k.conn = c.id AND k.use = 'identity'`

func scanPeerCheckpoint(row pgx.CollectableRow) (p PeerCheckpoint, err error) {
	var note, refused []byte
	if err := row.Scan(&p.Conn, &p.Peer, &note, &p.Received, &refused, &p.Why, &p.RefusedAt, &p.Public); err != nil {
		return p, err
	}
	p.Note, p.Refused = string(note), string(refused)
	if p.Checkpoint.Checkpoint, err = audittree.Open(p.Note, p.Public); err != nil {
		return p, fmt.Errorf("reading the checkpoint that is kept of %s: %w", p.Peer, err)
	}
	return p, nil
}

// PeerCheckpoints returns what is kept of peers, the newest era of each first; of one connection where conn is not empty.
func (db *DB) PeerCheckpoints(ctx context.Context, conn string) (list []PeerCheckpoint, err error) {
	err = db.Read(ctx, "reading the checkpoints of peers", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, peerCheckpoints+` WHERE $1 = '' OR p.conn::text = $1 ORDER BY c.peer_name, p.conn, p.era DESC`, conn)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanPeerCheckpoint)
		return err
	})
	return list, err
}
