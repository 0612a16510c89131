package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A ConnState is the state of a connection.
type ConnState string

// The states of a connection. Revoked and rejected are final.
const (
	Pending      ConnState = commands.ConnPending
	Active       ConnState = commands.ConnActive
	Suspended    ConnState = commands.ConnSuspended
	Disconnected ConnState = commands.ConnDisconnected
	Rejected     ConnState = commands.ConnRejected
	Revoked      ConnState = commands.ConnRevoked
)

// An Authority says who may ask whom over a connection.
type Authority string

// Authorities: we command the peer, or we obey it.
const (
	Commands Authority = "commands"
	Obeys    Authority = "obeys"
)

// A Connection is the validated relation of this instance and one peer.
type Connection struct {
	ID        string             `json:"id"`
	Peer      signing.InstanceID `json:"peer"`
	Name      string             `json:"name"`
	Authority Authority          `json:"authority"`
	State     ConnState          `json:"state"`
	Reason    string             `json:"reason,omitempty"`
	By        string             `json:"by,omitempty"`
	Since     time.Time          `json:"since"`
	Epoch     int64              `json:"epoch"`
	LinkKey   string             `json:"link_key"`
	LinkURL   string             `json:"link_url,omitempty"`
	LinkPin   string             `json:"link_pin,omitempty"`
	CreatedAt time.Time          `json:"created_at"`
	EndTold   bool               `json:"-"` // the peer has said that it knows of the end
}

const connectionColumns = `id::text, peer, peer_name, authority, state, state_reason, state_by, state_at, epoch, link_key, link_url, link_pin, created_at, end_told`

// A PeerKeys is what the other side proved to hold in the handshake.
type PeerKeys struct {
	Identity, Signing, Sealing []byte
}

// A NewConnection is the outcome of a handshake, ready to be stored.
type NewConnection struct {
	Connection
	Keys   PeerKeys
	Signs  signing.KeyID // our key that the peer was shown; "" for the current one
	Invite string        // the invite to use up; "" on the side that was invited
	Grant  GrantTerms
	Actor  string
}

// AddConnection stores a connection with its keys and grant, and uses up the
// invite, in one transaction. Called again for the same peer and invite it
// returns the connection that is there. A key that somebody else holds gives
// [signing.KeyDuplicate], a spent or expired invite [commands.NotFound].
func (db *DB) AddConnection(ctx context.Context, n NewConnection) (Connection, error) {
	var c Connection
	err := db.Tx(ctx, "adding the connection with "+n.Name, func(ctx context.Context, tx *Tx) error {
		var err error
		if c, err = findInvited(ctx, tx, n); err == nil || !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if n.Invite != "" {
			if err := useInvite(ctx, tx, n.Invite); err != nil {
				return err
			}
		}
		if c, err = insertConnection(ctx, tx, n); err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: n.Actor, Action: "connection." + string(c.State), Object: c.Name, Conn: c.ID})
		return nil
	})
	return c, err
}

func findInvited(ctx context.Context, tx *Tx, n NewConnection) (Connection, error) {
	rows, err := tx.Query(ctx, `SELECT `+connectionColumns+` FROM connections
		WHERE peer = $1 AND link_key = $2 AND (id = $3::uuid OR invite = nullif($4, '')::uuid) AND NOT has_ended(state)`,
		n.Peer, n.LinkKey, n.ID, n.Invite)
	if err != nil {
		return Connection{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Connection])
}

func insertConnection(ctx context.Context, tx *Tx, n NewConnection) (Connection, error) {
	rows, err := tx.Query(ctx, `
		INSERT INTO connections (id, peer, peer_name, authority, state, state_by, epoch, link_key, link_url, link_pin, invite)
		VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $8, $9, nullif($10, '')::uuid) RETURNING `+connectionColumns,
		n.ID, n.Peer, n.Name, n.Authority, n.State, n.Actor, n.LinkKey, n.LinkURL, n.LinkPin, n.Invite)
	if err != nil {
		return Connection{}, err
	}
	c, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Connection])
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23505" {
		return c, commands.Refuse(commands.Conflict, "a connection with %s, or with this instance, is there already", n.Name).
			Hinting("revoke the old one first; see").Running("connections", "list")
	}
	if err != nil {
		return c, err
	}
	if err := checkLinkKey(ctx, tx, c); err != nil {
		return c, err
	}
	// Who comes back under a name is frozen as that was, but for what waited for a word of the old connection.
	if _, err := tx.Exec(ctx, `UPDATE freezes f SET target = $1 FROM connections old
		WHERE f.scope = 'connection' AND f.target = old.id::text AND old.peer_name = $2 AND has_ended(old.state) AND f.actor <> $3`, c.ID, c.Name, heldBy); err != nil {
		return c, err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO sequences (conn, kid, told) SELECT $1, coalesce(nullif($2, ''), k.kid), CASE WHEN $2 IN ('', k.kid) THEN i.keys ELSE 0 END
		FROM own_keys k, instance i WHERE k.retired_at IS NULL`, c.ID, n.Signs); err != nil {
		return c, err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO confirmed (conn) VALUES ($1)`, c.ID); err != nil {
		return c, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO grants (conn, kinds, runtimes) VALUES ($1, $2, $3)`, c.ID, n.Grant.Kinds, n.Grant.Runtimes)
	if err != nil {
		return c, err
	}
	return c, insertKeys(ctx, tx, c, n.Keys)
}

// checkLinkKey refuses a link key that logs another peer in here: the message
// server could not tell the two apart. Where we dial, it is our own.
func checkLinkKey(ctx context.Context, tx *Tx, c Connection) error {
	var holder string
	err := tx.QueryRow(ctx, `SELECT peer_name FROM connections
		WHERE link_key = $1 AND peer <> $2 AND authority = 'commands' AND NOT has_ended(state) LIMIT 1`, c.LinkKey, c.Peer).Scan(&holder)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &signing.Rejected{Code: signing.KeyDuplicate, Why: "link key already belongs to peer " + holder}
}

// insertKeys admits the peer's keys: strong ones that nobody else holds.
func insertKeys(ctx context.Context, tx *Tx, c Connection, k PeerKeys) error {
	for use, pub := range map[string][]byte{"identity": k.Identity, "signing": k.Signing, "sealing": k.Sealing} {
		admit := signing.AdmitSealingKey
		if use != "sealing" {
			admit = func(pub []byte) error { return signing.AdmitKey(pub) }
		}
		if err := admit(pub); err != nil {
			return err
		}
		if err := checkFreeKey(ctx, tx, c.Peer, pub); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO keys (conn, kid, owner, use, pub) VALUES ($1, $2, $3, $4, $5)`,
			c.ID, signing.KeyIDOf(pub), c.Peer, use, pub); err != nil {
			return err
		}
	}
	return nil
}

// checkFreeKey refuses a key that another peer holds.
func checkFreeKey(ctx context.Context, tx *Tx, peer signing.InstanceID, pub []byte) error {
	var holder string
	err := tx.QueryRow(ctx, `SELECT c.peer_name FROM keys k JOIN connections c ON c.id = k.conn
		WHERE k.pub = $1 AND c.peer <> $2 LIMIT 1`, pub, peer).Scan(&holder)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &signing.Rejected{Code: signing.KeyDuplicate, Why: "key already belongs to peer " + holder}
}

// Connections returns all connections, oldest first.
func (db *DB) Connections(ctx context.Context) ([]Connection, error) {
	var list []Connection
	err := db.retry(ctx, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, `SELECT `+connectionColumns+` FROM connections ORDER BY created_at, id`)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Connection])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the connections: %w", err)
	}
	return list, nil
}

// Verifier returns what is needed to open messages of connection c: the keys of
// its peer. Whether one was revoked is decided in the transaction of a message's
// effect.
func (db *DB) Verifier(ctx context.Context, c Connection) (signing.Verifier, error) {
	s, err := db.KeysOf(ctx, c)
	return s.Verifier, err
}

// allowed says which states each state may be changed to by an operator.
var allowed = map[ConnState][]ConnState{
	Pending:      {Active, Rejected, Revoked},
	Active:       {Suspended, Disconnected, Revoked},
	Suspended:    {Active, Disconnected, Revoked},
	Disconnected: {Active, Revoked},
}

// Verbs are the words by which people change a connection's state.
var Verbs = map[string]ConnState{"suspend": Suspended, "resume": Active, "revoke": Revoked}

// OfPerson reports whether actor is somebody who asks over the API, as "uid:1000" and "token:ci", and no part of an instance, as "self".
func OfPerson(actor string) bool { return strings.Contains(actor, ":") }

// Overrides reports whether the word of actor takes the place of that of by, who stopped the same thing before: a person's does that of
// an instance, which lets go on by itself what it has stopped, or by a word for all of it.
func Overrides(actor, by string) bool { return OfPerson(actor) && !OfPerson(by) }

// Ended reports whether s is final.
func (s ConnState) Ended() bool { return s == Revoked || s == Rejected }

// SetConnectionState changes the state of connection id. It waits for effects
// that hold the row and returns after it was committed: from then on no
// transaction accepts what the new state forbids. Setting the state that is
// there already is no error: who has suspended it, and why, stays, unless actor
// [Overrides] that. end is called, where it is not nil, in the transaction that ends the connection; what the connection has in the outbox is
// closed in it. A reason that the peer would refuse to be told is refused.
func (db *DB) SetConnectionState(ctx context.Context, id string, to ConnState, reason, actor string, end func(context.Context, *Tx, Connection) error) (Connection, error) {
	return db.changeConnection(ctx, id, to, reason, actor, "", end)
}

// ResumeConnection is SetConnectionState to [Active] of a connection that by has suspended. Any other stays as it is, and is returned:
// somebody else may have suspended it meanwhile.
func (db *DB) ResumeConnection(ctx context.Context, id, by, reason, actor string) (Connection, error) {
	return db.changeConnection(ctx, id, Active, reason, actor, by, nil)
}

// changeConnection is SetConnectionState; of a connection that by has suspended alone, unless by is empty.
func (db *DB) changeConnection(ctx context.Context, id string, to ConnState, reason, actor, by string, end func(context.Context, *Tx, Connection) error) (Connection, error) {
	var c Connection
	if err := commands.CheckReason(reason); err != nil {
		return c, err
	}
	err := db.Tx(ctx, fmt.Sprintf("setting connection %s to %s", id, to), func(ctx context.Context, tx *Tx) (err error) {
		if c, err = one(tx.Query(ctx, `SELECT `+connectionColumns+` FROM connections WHERE id = $1 FOR UPDATE`, id)); err != nil {
			return err
		}
		if by != "" && (c.State != Suspended || c.By != by) {
			return nil
		}
		anew := to == Suspended && Overrides(actor, c.By)
		if c.State == to && !anew {
			return nil
		}
		if c.State != to && !mayBecome(c.State, to) {
			return c.cannotBecome(to)
		}
		if c, err = one(tx.Query(ctx, `UPDATE connections SET state = $2, state_reason = $3, state_by = $4, state_at = clock_timestamp()
			WHERE id = $1 RETURNING `+connectionColumns, id, to, reason, actor)); err != nil {
			return err
		}
		tx.Audit(AuditRow{Actor: actor, Action: "connection." + string(to), Object: c.Name, Why: reason, Conn: id})
		if to == Active && by == "" { // a person's word
			if err := forgiveRecalled(ctx, tx, id); err != nil {
				return err
			}
		}
		if !to.Ended() { // whoever of the peer's key is heard next is the peer
			_, err := tx.Exec(ctx, `UPDATE sequences SET incarnations = '{}' WHERE conn = $1 AND $2 = 'active'`, id, to)
			return err
		}
		if err := noMoreHeld(ctx, tx, id); err != nil { // nothing of it is claimed again
			return err
		}
		if end != nil {
			if err := end(ctx, tx, c); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `UPDATE confirmed SET numbers = '{(,)}' WHERE conn = $1`, id); err != nil {
			return fmt.Errorf("closing the outbox: %w", err)
		}
		return nil
	})
	return c, err
}

// cannotBecome refuses a change to a state that the one of c does not lead to.
func (c Connection) cannotBecome(to ConnState) *commands.Refused {
	r := commands.Refuse(commands.Conflict, "connection %s is %s since %s and cannot become %s", c.Name, c.State, c.Since.UTC().Format(time.RFC3339), to)
	switch {
	case !c.State.Ended():
		return r
	case c.Authority == Commands:
		return r.Hinting("it never comes back; to let its host join anew").Running("invite", "--name", c.Name)
	}
	return r.Hinting("it never comes back; join anew, with a token that its operator makes").Running("spoke", "join", "--token-file", "FILE")
}

// NoteEndTold records that the peer of a connection that has ended knows it.
func (db *DB) NoteEndTold(ctx context.Context, id string) error {
	return db.Tx(ctx, "noting that the peer knows of the end", func(ctx context.Context, tx *Tx) error {
		_, err := tx.Exec(ctx, `UPDATE connections SET end_told = true WHERE id = $1 AND has_ended(state)`, id)
		return err
	})
}

func one(rows pgx.Rows, err error) (Connection, error) {
	if err != nil {
		return Connection{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Connection])
}

func mayBecome(from, to ConnState) bool {
	for _, s := range allowed[from] {
		if s == to {
			return true
		}
	}
	return false
}
