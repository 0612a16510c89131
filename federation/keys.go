package federation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// keySets takes the key sets of peers, whichever side commands.
var keySets = Handler{
	Kinds: []commands.Kind{commands.KeySetKind},
	Take: func(ctx context.Context, tx *store.Tx, from store.Standing, batch []*store.Incoming) error {
		for _, m := range batch {
			if err := store.TakeKeySet(ctx, tx, from, m); err != nil {
				return err
			}
		}
		return nil
	},
}

func isKeySet(m *store.Incoming) bool { return m.Header.Kind == string(commands.KeySetKind) }

// unknownKey reports whether o is signed with a key that was not known when the
// keys were last read.
func unknownKey(o opening) bool {
	return o.rejected != nil && commands.CodeOf(o.rejected) == signing.KeyUnknown
}

// learnKeys reads the keys of the peer again, for this exchange at once. A peer
// signs with a new key as soon as it knows that its key set was stored here,
// which may be before this process has heard of it.
func (x *Exchange) learnKeys(ctx context.Context, p *Peer) *Peer {
	v, err := x.board.DB.KeysOf(ctx, p.Connection)
	if err != nil {
		x.log.DebugContext(ctx, "reading the peer's keys", "err", err)
		return p
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := *x.peer.Load() // the board may have read the table meanwhile
	v.Verifier.Heads = now.Verifier.Heads
	now.Verifying = v
	x.peer.Store(&now)
	return &now
}

// endedKey refuses a message that has no transaction of its own, for its key.
func endedKey(p *Peer, m *store.Incoming) *commands.Refused {
	return commands.Refuse(p.Ended[m.Header.Kid], "the signing key was revoked, or its time has passed")
}

// refuseKey notes that the peer signs with a key that has ended here, and audits it
// when that is new. The next heartbeat tells the peer. It returns r, and why that could not be audited.
func (x *Exchange) refuseKey(ctx context.Context, p *Peer, in *store.Incoming, r *commands.Refused) error {
	if r.Code != signing.KeyWindow && r.Code != signing.KeyRevoked { // it is gone from the table: no heartbeat says so
		return errors.Join(r, x.countRejected(ctx, p, []opening{{in: in, rejected: r}}))
	}
	ended := commands.EndedKey{Key: in.Header.Kid, Code: r.Code}
	x.mu.Lock()
	known := x.refuses != nil && *x.refuses == ended
	x.refuses = &ended
	x.mu.Unlock()
	if known {
		return r
	}
	return errors.Join(r, x.countRejected(ctx, p, []opening{{in: in, rejected: r}}))
}

func (x *Exchange) lapsedKey() *commands.EndedKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.refuses
}

// beatSigner returns what signs a heartbeat: the identity key where the peer has
// ended the signing key, or has lost it. Heartbeats say what has to be known before a new key can
// be told.
func (x *Exchange) beatSigner(p *Peer) (*signing.Signer, error) {
	x.mu.Lock()
	ended := x.lapsed != nil && x.lapsed.Key == p.signs || x.keyLost
	x.mu.Unlock()
	if ended {
		return x.board.Keys.Identity, nil
	}
	return x.board.DB.SignerOf(p.signs)
}

// patienceWithKeys is how many heartbeats in a row may say that the peer refuses
// our key before a person is told: right after a revocation, one or two do.
const patienceWithKeys = 3

// noteLapsed notes whether the peer refuses the key that this instance signs with.
// That lasts if this instance was restored from a backup that is older than its
// newest key: nobody but a person can then say which key is to be kept.
func (x *Exchange) noteLapsed(ctx context.Context, p *Peer, ended *commands.EndedKey) error {
	if ended != nil && ended.Key != x.peer.Load().signs {
		ended = nil // a key of the time before, or none of ours
	}
	x.mu.Lock()
	if x.lapsed, x.lapses = ended, x.lapses+1; ended == nil {
		x.lapses = 0
	}
	tell := x.lapses >= patienceWithKeys && ended.Key != x.lapseLogged
	if tell {
		x.lapseLogged = ended.Key
	}
	x.mu.Unlock()
	if !tell {
		return nil
	}
	x.log.WarnContext(ctx, "the peer has ended the key that this instance signs with; was this instance restored from a backup?", "code", ended.Code, "key", ended.Key, "next", x.board.line(MendKey(ended.Key, x.peer.Load().revoked)...))
	return x.board.DB.Audit(ctx, store.AuditRow{Actor: string(p.Peer), Action: "key.refused", Object: string(ended.Key), Code: string(ended.Code), Why: "the peer has ended the key that this instance signs with", Conn: p.ID})
}

// tendKeys tells peers about the keys of this instance, step by step. It reports whether
// the next step may be due soon: a peer that is linked does not know them yet. For one that
// is not there is nothing to do before it is.
func (b *Board) tendKeys(ctx context.Context) (soon bool, err error) {
	done, behind, err := b.DB.TendKeys(ctx)
	for _, t := range done {
		if t.Signs != "" {
			b.Log.InfoContext(ctx, "a peer knows the new signing key; it signs from now on", "connection", t.Name, "key", t.Signs)
		}
		if x := b.Exchange(t.Conn); x != nil && t.Resend {
			x.cursor.Rewind()
		}
	}
	return slices.ContainsFunc(behind, b.linked), err
}

// linked reports whether there is a link to the peer of conn.
func (b *Board) linked(conn string) bool {
	x := b.Exchange(conn)
	return x != nil && x.way.link() != 0
}

// confirmPatience is how long a change of keys waits for the peers that are linked.
const confirmPatience = 10 * time.Second

// ChangeKey changes the signing key of this instance and waits a while for the
// linked peers to confirm it. Those that have not are told as soon as they can be.
func (b *Board) ChangeKey(ctx context.Context, c store.KeyChange) (store.KeysView, error) {
	if err := b.DB.ChangeKey(ctx, c); err != nil {
		return store.KeysView{}, err
	}
	// The decision stands: what follows must happen even if the caller leaves.
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), confirmPatience)
	defer done()
	for b.Await(ctx) == nil && b.linkedBehind() && wait.For(ctx, 20*time.Millisecond) == nil {
	}
	return b.DB.KeysView(context.WithoutCancel(ctx))
}

// linkedBehind reports whether a peer that is linked does not know the newest key, and may soon.
func (b *Board) linkedBehind() bool {
	current, err := b.DB.Signer(context.Background())
	if err != nil {
		return true
	}
	for _, x := range b.Exchanges() {
		if p := x.peer.Load(); x.way.link() != 0 && x.relays() && p.signs != current.KeyID() && p.refuses == "" {
			return true
		}
	}
	return false
}
