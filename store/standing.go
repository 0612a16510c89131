package store

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A Standing is what a transaction may rely on about a connection until it ends:
// a change of the connection waits for it.
type Standing struct {
	ID        string
	Name      string
	Peer      signing.InstanceID
	Authority Authority
	State     ConnState
	Epoch     int64
	Kinds     []string // that the peer may ask for; none without a grant that holds
	Runtimes  []string
	Workspace string // that messages of the peer are in
	Now       time.Time
	granted   bool
	wentOn    bool    // after a restore our numbers went on above those that the peer has
	stored    numbers // the peer's numbers that are stored
	kept      kept    // of the peer's messages
	room      *inboxRoom
	keys      map[signing.KeyID]keyRow
	read      time.Time // when Now was read, by this process's clock
}

// same reports whether what decides about messages, before each is judged, is as it was.
func (s Standing) same(was Standing) bool {
	return s.ID == was.ID && s.Name == was.Name && s.Peer == was.Peer && s.Authority == was.Authority && s.State == was.State && s.Epoch == was.Epoch &&
		s.granted == was.granted && s.Workspace == was.Workspace && slices.Equal(s.Kinds, was.Kinds) && slices.Equal(s.Runtimes, was.Runtimes)
}

type keyRow struct {
	identity            bool
	notBefore, notAfter time.Time
	revoked             bool
}

// lockConnection queues the reading of a connection with a lock, FOR SHARE at least: a
// revocation waits for this transaction, and what comes after it is refused. Where there
// is no such connection s stays empty, and each message is refused.
func lockConnection(tx *Tx, id, lock string, s *Standing) {
	tx.Queue(`
		SELECT c.id::text, c.peer_name, c.peer, c.authority, c.state, c.epoch, clock_timestamp(), coalesce(g.kinds, '{}'), coalesce(g.runtimes, '{}'),
			coalesce(g.expires_at > clock_timestamp(), false), coalesce(g.wsp, ''),
			coalesce(q.base > 0, false), coalesce(q.stored, '{}'), coalesce(q.kept_rows, 0), coalesce(q.kept_bytes, 0)
		FROM connections c LEFT JOIN grants g ON g.conn = c.id LEFT JOIN sequences q ON q.conn = c.id WHERE c.id = $1 `+lock+` OF c`, id).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&s.ID, &s.Name, &s.Peer, &s.Authority, &s.State, &s.Epoch, &s.Now, &s.Kinds, &s.Runtimes, &s.granted, &s.Workspace, &s.wentOn, &s.stored, &s.kept.rows, &s.kept.bytes)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("reading the connection of messages: %w", err)
		}
		s.read, s.room = time.Now(), &tx.db.inbox
		return nil
	})
	tx.Queue(`SELECT kid, use = 'identity', not_before, least(not_after, 'epoch'::timestamptz + interval '5000 years'), coalesce(revoked_at <= clock_timestamp(), false)
		FROM keys WHERE conn = $1 AND use <> 'sealing' ORDER BY kid FOR SHARE`, id).Query(func(rows pgx.Rows) error {
		s.keys = map[signing.KeyID]keyRow{}
		var kid signing.KeyID
		var k keyRow
		_, err := pgx.ForEachRow(rows, []any{&kid, &k.identity, &k.notBefore, &k.notAfter, &k.revoked}, func() error {
			s.keys[kid] = k
			return nil
		})
		if err != nil {
			return fmt.Errorf("reading the keys of messages: %w", err)
		}
		return nil
	})
}

// judge says what only the database knows about a message's connection and key.
func (s Standing) judge(m *Incoming) (code signing.Code, why string) {
	if s.ID == "" {
		return signing.ConnUnknown, "no such connection"
	}
	k, ok := s.keys[m.Header.Kid]
	kind, begun := commands.Kind(m.Header.Kind), s.Now
	if at := time.UnixMilli(m.Header.Iat); kind == commands.KillKind && at.After(begun) { // it is taken early, by a clock that makes its key too new, too
		begun = at
	}
	switch {
	case m.Header.Epoch != s.Epoch:
		return signing.EpochStale, fmt.Sprintf("the connection is in epoch %d", s.Epoch)
	case !ok, k.identity && kind != commands.KeySetKind:
		return signing.KeyUnknown, "the signing key does not belong to this connection"
	case k.revoked:
		return signing.KeyRevoked, "the signing key was revoked"
	case begun.Before(k.notBefore) || s.Now.After(k.notAfter):
		return signing.KeyWindow, "the signing key is not valid at this time"
	case s.State == Active, s.State == Suspended && !kind.Held():
		return "", "" // work accepted earlier may end, be killed and be reported
	}
	return signing.ConnState, fmt.Sprintf("the connection with %s is %s", s.Name, s.State)
}

// grants asks the connection's grant; without one nothing may be asked for.
func (s Standing) grants(m *Incoming) *commands.Refused {
	switch {
	case m.Header.Wsp != s.Workspace:
		return WrongWorkspace(m)
	case !m.Asks:
		return nil
	case !s.granted:
		return commands.Refuse(commands.Grant, "this connection has no grant, or it has expired")
	case !slices.Contains(s.Kinds, m.Header.Kind):
		return commands.Refuse(commands.Grant, "the grant of this connection does not allow %s", m.Header.Kind)
	}
	return nil
}
