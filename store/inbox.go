package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// An Incoming is an authentic message as the receiving room decided about it:
// Command for one to act on, Refusal for one to answer with no.
type Incoming struct {
	Conn    string
	Header  signing.Header
	Digest  signing.Digest
	Wire    []byte
	Body    commands.Body     // nil when the body could not be read
	Refusal *commands.Refused // why it will not be acted on; nil = act
	Policy  string            // version of the spoke's policy that was asked about it; "" = none was
}

// A Fate is what a transaction found out about an incoming message.
type Fate struct {
	Code signing.Code // "" = new and to be acted on
	Why  string
}

// connRow is what a transaction may rely on about a connection until it ends.
type connRow struct {
	name  string
	state ConnState
	epoch int64
	keys  map[signing.KeyID]keyRow
	now   time.Time
	grant Grant
}

// A Grant is what the peer of a connection may ask for. Without a row nothing is
// granted.
type Grant struct {
	GrantTerms
	Live bool // it has not expired
}

type keyRow struct {
	notBefore, notAfter time.Time
	revoked             bool
}

// lockConnections reads the connections of a batch FOR SHARE: a revocation
// waits for this transaction, and what comes after it is refused.
func lockConnections(ctx context.Context, tx *Tx, ids []string) (map[string]*connRow, error) {
	found := map[string]*connRow{}
	rows, err := tx.Query(ctx, `
		SELECT c.id::text, c.peer_name, c.state, c.epoch, clock_timestamp(), coalesce(g.kinds, '{}'), coalesce(g.runtimes, '{}'), coalesce(g.expires_at > clock_timestamp(), false)
		FROM connections c LEFT JOIN grants g ON g.conn = c.id WHERE c.id = ANY ($1::uuid[]) ORDER BY c.id FOR SHARE OF c`, ids)
	if err != nil {
		return nil, fmt.Errorf("reading the connections of messages: %w", err)
	}
	var id string
	var c connRow
	if _, err = pgx.ForEachRow(rows, []any{&id, &c.name, &c.state, &c.epoch, &c.now, &c.grant.Kinds, &c.grant.Runtimes, &c.grant.Live}, func() error {
		row := c
		row.keys = map[signing.KeyID]keyRow{}
		row.grant.Kinds, row.grant.Runtimes = slices.Clone(c.grant.Kinds), slices.Clone(c.grant.Runtimes)
		found[id] = &row
		return nil
	}); err != nil {
		return nil, fmt.Errorf("reading the connections of messages: %w", err)
	}
	rows, err = tx.Query(ctx, `SELECT conn::text, kid, not_before, least(not_after, 'epoch'::timestamptz + interval '5000 years'), coalesce(revoked_at <= clock_timestamp(), false)
		FROM keys WHERE conn = ANY ($1::uuid[]) AND use = 'signing' ORDER BY conn, kid FOR SHARE`, ids)
	if err != nil {
		return nil, fmt.Errorf("reading the keys of messages: %w", err)
	}
	var kid signing.KeyID
	var k keyRow
	_, err = pgx.ForEachRow(rows, []any{&id, &kid, &k.notBefore, &k.notAfter, &k.revoked}, func() error {
		if c := found[id]; c != nil {
			c.keys[kid] = k
		}
		return nil
	})
	return found, err
}

// judge applies what only the database knows about a message's connection and
// key, before its id is looked at.
func (c *connRow) judge(m Incoming) Fate {
	if c == nil {
		return Fate{signing.ConnUnknown, "no such connection"}
	}
	k, ok := c.keys[m.Header.Kid]
	switch kind := commands.Kind(m.Header.Kind); {
	case m.Header.Epoch != c.epoch:
		return Fate{signing.EpochStale, fmt.Sprintf("the connection is in epoch %d", c.epoch)}
	case !ok:
		return Fate{signing.KeyUnknown, "the signing key does not belong to this connection"}
	case k.revoked:
		return Fate{signing.KeyRevoked, "the signing key was revoked"}
	case c.now.Before(k.notBefore) || c.now.After(k.notAfter):
		return Fate{signing.KeyWindow, "the signing key is not valid at this time"}
	case c.state == Active:
		return Fate{}
	case c.state == Suspended && kind != commands.SpawnKind:
		return Fate{} // work accepted earlier may end, be killed and be reported
	}
	return Fate{signing.ConnState, fmt.Sprintf("the connection with %s is %s", c.name, c.state)}
}

// guard decides the fate of each message and stores the new ones. A message
// whose connection or key is not in order is not stored: nothing of it has an
// effect, and it may be judged again when it comes again.
func guard(ctx context.Context, tx *Tx, batch []Incoming) ([]Fate, map[string]*connRow, error) {
	conns, err := lockConnections(ctx, tx, connsOf(batch))
	if err != nil {
		return nil, nil, err
	}
	fates := make([]Fate, len(batch))
	var stored []int
	for i, m := range batch {
		if fates[i] = conns[m.Conn].judge(m); fates[i].Code == "" {
			stored = append(stored, i)
		}
	}
	fresh, err := insertInbox(ctx, tx, batch, stored)
	if err != nil {
		return nil, nil, err
	}
	var again []int
	for _, i := range stored {
		key := batch[i].Conn + batch[i].Header.ID
		if !fresh[key] {
			again = append(again, i)
		}
		delete(fresh, key) // a second copy in this very batch is a repeat
	}
	return fates, conns, classify(ctx, tx, batch, again, fates)
}

func connsOf(batch []Incoming) []string {
	seen, list := map[string]bool{}, []string(nil)
	for _, m := range batch {
		if !seen[m.Conn] {
			seen[m.Conn] = true
			list = append(list, m.Conn)
		}
	}
	return list
}

func insertInbox(ctx context.Context, tx *Tx, batch []Incoming, which []int) (map[string]bool, error) {
	var conn, id, kind, code, re, task []string
	var seq []int64
	var exp []time.Time
	var digest, wire [][]byte
	for _, i := range which {
		m := batch[i]
		conn, id, seq = append(conn, m.Conn), append(id, m.Header.ID), append(seq, m.Header.Seq)
		kind, exp = append(kind, m.Header.Kind), append(exp, time.UnixMilli(m.Header.Exp))
		digest, wire = append(digest, m.Digest[:]), append(wire, m.Wire)
		r, c := "", ""
		if m.Header.Re != nil {
			r = m.Header.Re.ID
		}
		if m.Refusal != nil {
			c = string(m.Refusal.Code)
		}
		re, code, task = append(re, r), append(code, c), append(task, TaskOf(m.Body))
	}
	rows, err := tx.Query(ctx, `
		INSERT INTO inbox (conn, id, seq, digest, kind, code, re, task, exp, wire)
		SELECT a, b, c, d, e, f, nullif(g, '')::uuid, nullif(h, '')::uuid, i, j
		FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[], $9::timestamptz[], $10::bytea[])
			AS u (a, b, c, d, e, f, g, h, i, j)
		ON CONFLICT DO NOTHING RETURNING conn::text || id::text`,
		conn, id, seq, digest, kind, code, re, task, exp, wire)
	if err != nil {
		return nil, fmt.Errorf("filling the inbox: %w", err)
	}
	fresh, key := map[string]bool{}, ""
	if _, err = pgx.ForEachRow(rows, []any{&key}, func() error { fresh[key] = true; return nil }); err != nil {
		return nil, fmt.Errorf("filling the inbox: %w", err)
	}
	return fresh, nil
}

// classify says of messages that were not new what they repeat.
func classify(ctx context.Context, tx *Tx, batch []Incoming, which []int, fates []Fate) error {
	for _, i := range which {
		m := batch[i]
		var digest []byte
		err := tx.QueryRow(ctx, `SELECT digest FROM inbox WHERE conn = $1 AND id = $2`, m.Conn, m.Header.ID).Scan(&digest)
		switch {
		case err == nil && bytes.Equal(digest, m.Digest[:]):
			fates[i] = Fate{signing.ReplaySame, "the same message again"}
		case err == nil:
			fates[i] = Fate{signing.ReplayDiff, "message id was already used with other content"}
		case err == pgx.ErrNoRows:
			fates[i] = Fate{signing.SeqReuse, fmt.Sprintf("sequence %d was already used with other content; was a backup restored?", m.Header.Seq)}
		default:
			return fmt.Errorf("looking up message %s: %w", m.Header.ID, err)
		}
	}
	return nil
}

// quarantine suspends connections whose peer used a sequence number twice: a
// restored backup or a cloned instance speaks.
func quarantine(ctx context.Context, tx *Tx, batch []Incoming, fates []Fate, actor string) error {
	for i, f := range fates {
		if f.Code != signing.SeqReuse {
			continue
		}
		_, err := tx.Exec(ctx, `UPDATE connections SET state = 'suspended', state_reason = $2, state_by = $3, state_at = clock_timestamp()
			WHERE id = $1 AND state = 'active'`, batch[i].Conn, f.Why, actor)
		if err != nil {
			return fmt.Errorf("suspending connection %s: %w", batch[i].Conn, err)
		}
	}
	return nil
}

// TaskOf returns the task that a body is about, "" for none.
func TaskOf(b commands.Body) string {
	switch b := b.(type) {
	case *commands.Spawn:
		return b.Task
	case *commands.Status:
		return b.Task
	case *commands.Kill:
		return b.Task
	case *commands.Accepted:
		return b.Task
	case *commands.RefusedBody:
		return b.Task
	case *commands.Started:
		return b.Task
	case *commands.Ended:
		return b.Task
	case *commands.Killed:
		return b.Task
	case *commands.TaskState:
		return b.Task
	case *commands.Result:
		return b.Task
	}
	return ""
}
