package hub

import (
	"context"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/store"
)

const handshakeBad commands.Code = "HANDSHAKE_BAD"

// Bounds of reading the table of invites for clients that are not authenticated.
const (
	inviteReadEvery = time.Second
	inviteReadTime  = time.Second
)

// mayJoin is asked by the message server about each connection that says it
// joins. Only who proves that he holds a token gets as far as a handshake, which
// finds out whether its invite can still be used.
func (h *Hub) mayJoin(joinID string, exporter []byte) (invite string, ok bool) {
	v, known := h.join.keys.get(h.DB, join.InviteOf(joinID))
	if !known {
		v.ProofKey = make([]byte, 32) // takes as long to compare as a known one
	}
	switch proven := join.CheckJoinID(joinID, v.ProofKey, exporter); {
	case !known:
		h.join.refusals.Note(joinRefused("", commands.NotFound, "no such invite"))
	case !proven:
		h.join.refusals.Note(joinRefused(v.Name, handshakeBad, "no proof for the token's secret"))
	default:
		return v.ID, true
	}
	return "", false
}

// joinFull is told of a holder of a token who found all places taken.
func (h *Hub) joinFull(invite string) {
	v, _ := h.join.keys.get(h.DB, invite)
	h.join.refusals.Note(joinRefused(v.Name, commands.Rate, "too many join at this time, with this invite or in all"))
}

// inviteKeys are the proof keys of the invites, kept so that the message
// server's question costs no query.
type inviteKeys struct {
	reading sync.Mutex // held while the table is read; guards last
	last    time.Time

	mu   sync.Mutex // guards byID
	byID map[string]store.Invite
}

// get returns an invite with its proof key. One that is not known here may have
// been made by another process: then the table is read, but once a second at
// most, whoever asks, and nobody waits for a reading that is under way.
func (k *inviteKeys) get(db *store.DB, id string) (store.Invite, bool) {
	if v, ok := k.known(id); ok || !k.reading.TryLock() {
		return v, ok
	}
	defer k.reading.Unlock()
	if time.Since(k.last) >= inviteReadEvery {
		_ = k.readLocked(context.Background(), db) // it is tried again in a second
	}
	return k.known(id)
}

func (k *inviteKeys) known(id string) (store.Invite, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.byID[id]
	return v, ok
}

// read reads the table. What was committed before the call is known after it.
func (k *inviteKeys) read(ctx context.Context, db *store.DB) error {
	k.reading.Lock()
	defer k.reading.Unlock()
	return k.readLocked(ctx, db)
}

func (k *inviteKeys) readLocked(ctx context.Context, db *store.DB) error {
	ctx, done := context.WithTimeout(ctx, inviteReadTime)
	defer done()
	k.last = time.Now()
	all, err := db.InviteKeys(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byID = all
	return nil
}
