package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/signing"
)

// servingLease is how long a process that serves a connection may be silent
// before another one takes it over.
const servingLease = 30 * time.Second

// A Served is a connection with what it takes to serve it.
type Served struct {
	Connection
	Verifying
	Signs     signing.KeyID // our key that the peer knows
	Revoked   bool          // it is revoked here: the peer has not confirmed that
	Refuses   signing.Code  // why the peer has refused our newest key set; "" = it has not
	Workspace string        // that its messages are in
	Grant     GrantTerms    // of the peer; nothing where there is none
	Ours      bool          // this process serves it, by lease
	Holder    string        // the process that serves it otherwise, "" for none
	Freezes   int64         // number of the last change of what is frozen
	Until     time.Time     // when Holder's lease ends, unless it is renewed
}

// Serve returns all connections, ended ones too, oldest first, after it took or
// renewed the lease of process on every living one that no other process serves.
func (db *DB) Serve(ctx context.Context, process string) ([]Served, error) {
	var list []Served
	err := db.Tx(ctx, "serving connections", func(ctx context.Context, tx *Tx) error {
		list = nil
		tx.TellNobody()
		rows, err := tx.Query(ctx, `SELECT c.id::text, c.peer, c.peer_name, c.authority, c.state, c.state_reason, c.state_by, c.state_at, c.epoch, c.link_key, c.link_url, c.link_pin, c.created_at, c.end_told, coalesce(s.process = $1 AND s.until > clock_timestamp() + $2::interval / 2, false),
				NOT has_ended(c.state) AND (s.until IS NULL OR s.until <= clock_timestamp() OR s.process = $1), coalesce(g.wsp, ''), coalesce(g.kinds, '{}'), coalesce(g.runtimes, '{}'), coalesce(g.weight, 0), CASE WHEN g.expires_at < 'infinity' THEN g.expires_at END, n.kid, EXISTS (SELECT FROM own_keys k WHERE k.kid = n.kid AND k.revoked_at IS NOT NULL), coalesce(s.process, ''), coalesce(s.until, to_timestamp(0)),
				CASE WHEN n.told = i.keys THEN coalesce(r.code, '') ELSE '' END, f.last
			FROM instance i, freeze_numbers f, connections c JOIN sequences n ON n.conn = c.id LEFT JOIN serving s ON s.conn = c.id LEFT JOIN grants g ON g.conn = c.id
			LEFT JOIN outbox o ON o.id = n.keyset LEFT JOIN `+refusedSets+` ORDER BY c.created_at, c.id`, process, servingLease)
		if err != nil {
			return err
		}
		take := map[string]bool{}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Served, error) {
			var s Served
			var free bool
			c := &s.Connection
			err := row.Scan(&c.ID, &c.Peer, &c.Name, &c.Authority, &c.State, &c.Reason, &c.By, &c.Since, &c.Epoch, &c.LinkKey, &c.LinkURL, &c.LinkPin, &c.CreatedAt, &c.EndTold, &s.Ours, &free, &s.Workspace,
				&s.Grant.Kinds, &s.Grant.Runtimes, &s.Grant.Weight, &s.Grant.Expires, &s.Signs, &s.Revoked, &s.Holder, &s.Until, &s.Refuses, &s.Freezes)
			if free && !s.Ours {
				take[c.ID] = true
			}
			return s, err
		})
		if err != nil {
			return err
		}
		if err := db.lease(ctx, tx, process, list, take); err != nil {
			return err
		}
		return db.verifiers(ctx, tx, list)
	})
	return list, err
}

// lease takes the leases of connections that no other process serves.
func (db *DB) lease(ctx context.Context, tx *Tx, process string, list []Served, take map[string]bool) error {
	if len(take) == 0 {
		return nil
	}
	ids := make([]string, 0, len(take))
	for id := range take {
		ids = append(ids, id)
	}
	rows, err := tx.Query(ctx, `INSERT INTO serving AS s (conn, process, until) SELECT id, $2, clock_timestamp() + $3::interval FROM unnest($1::uuid[]) AS id ORDER BY id
		ON CONFLICT (conn) DO UPDATE SET process = excluded.process, until = excluded.until
		WHERE s.process = excluded.process OR s.until <= clock_timestamp() RETURNING s.conn::text`, ids, process, servingLease)
	if err != nil {
		return fmt.Errorf("taking the leases of connections: %w", err)
	}
	ours, id := map[string]bool{}, ""
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { ours[id] = true; return nil }); err != nil {
		return fmt.Errorf("taking the leases of connections: %w", err)
	}
	for i := range list {
		list[i].Ours = list[i].Ours || ours[list[i].ID]
	}
	return nil
}

// verifiers adds the keys of the peers.
func (db *DB) verifiers(ctx context.Context, tx *Tx, list []Served) error {
	at := map[string]*Verifying{}
	for i, s := range list {
		list[i].Verifying = db.verifying(s.Connection)
		at[s.ID] = &list[i].Verifying
	}
	rows, err := tx.Query(ctx, `SELECT `+verifyingColumns+` FROM keys k JOIN connections c ON c.id = k.conn
		WHERE k.use <> 'sealing' AND NOT has_ended(c.state)`)
	if err != nil {
		return fmt.Errorf("reading the keys of connections: %w", err)
	}
	return addKeys(rows, at)
}
