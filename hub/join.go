package hub

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/refusals"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// Bounds of handshakes under way.
const (
	maxJoining       = 64
	joiningPerInvite = 2
	joinTime         = time.Minute
)

// joins is what a hub keeps of those who join.
type joins struct {
	waiting  map[string]*joining // handshakes under way by join id; only ServeJoin's goroutine touches them
	keys     inviteKeys
	refusals *refusals.Counter
}

func (j *joins) start() {
	j.waiting = map[string]*joining{}
	j.refusals = refusals.New(joinRefused("", "JOIN_REFUSED", "joins were refused for too many different reasons to keep each"))
}

// room makes room for one more handshake under invite, at the cost of the
// oldest of it. It reports whether there is any.
func (j *joins) room(invite string) bool {
	var oldest string
	same := 0
	for joinID, w := range j.waiting {
		if w.invite.ID != invite {
			continue
		}
		if same++; oldest == "" || w.since.Before(j.waiting[oldest].since) {
			oldest = joinID
		}
	}
	if same >= joiningPerInvite {
		delete(j.waiting, oldest)
	}
	return len(j.waiting) < maxJoining
}

type joining struct {
	hello      join.Hello
	challenge  join.Challenge
	invite     store.Invite
	transcript join.Transcript
	signer     *signing.Signer // our key in the challenge
	since      time.Time
}

// errToken is all that a caller learns; the audit says more.
var errToken = errors.New("join token not accepted")

// joinReply is the answer to either step: a signed message, or an error.
type joinReply struct {
	Signed json.RawMessage `json:"signed,omitempty"`
	Code   commands.Code   `json:"code,omitempty"`
	Why    string          `json:"why,omitempty"`
}

// answerJoin answers one step of a handshake. Refusals are audited with their
// exact reason; the caller is told no more than it needs to be.
func (h *Hub) answerJoin(ctx context.Context, r transport.JoinRequest) []byte {
	for joinID, j := range h.join.waiting {
		if time.Since(j.since) > joinTime {
			delete(h.join.waiting, joinID)
		}
	}
	var raw []byte
	var err error
	if r.Step == "hello" {
		raw, err = h.hello(ctx, r)
	} else {
		raw, err = h.proof(ctx, r)
	}
	reply := joinReply{Signed: raw}
	if err != nil {
		reply = h.refuseJoin(r, err)
	}
	out, err := json.Marshal(reply)
	if err != nil {
		return nil
	}
	return out
}

// joinRefused is the row of the audit about somebody who was not let in with the invite for name, or with none that is known.
func joinRefused(name string, code commands.Code, why string) store.AuditRow {
	return store.AuditRow{Actor: "joining", Action: "join.refused", Object: name, Code: string(code), Why: why}
}

func (h *Hub) refuseJoin(r transport.JoinRequest, err error) joinReply {
	name := ""
	if j := h.join.waiting[r.JoinID]; j != nil {
		name = j.invite.Name
	}
	delete(h.join.waiting, r.JoinID)
	code := commands.CodeOf(err)
	if errors.Is(err, join.ErrHandshake) {
		code = handshakeBad
	}
	h.join.refusals.Note(joinRefused(name, code, err.Error()))
	switch code {
	case signing.KeyWeak, signing.KeyDuplicate, commands.Conflict:
		return joinReply{Code: code, Why: err.Error()}
	}
	return joinReply{Code: "JOIN_REFUSED", Why: errToken.Error()}
}

func (h *Hub) hello(ctx context.Context, r transport.JoinRequest) ([]byte, error) {
	invite, err := h.DB.FindInvite(ctx, join.InviteOf(r.JoinID))
	if err != nil {
		return nil, err
	}
	if !h.join.room(invite.ID) {
		return nil, fmt.Errorf("%d handshakes are under way", maxJoining)
	}
	j := &joining{invite: invite, since: time.Now()}
	h.join.waiting[r.JoinID] = j // a refusal forgets it
	if err := signing.DecodeBody(r.Body, &j.hello); err != nil {
		return nil, err
	}
	if !slices.Contains(j.hello.Protocols, join.Protocol) || len(j.hello.Nonce) != 32 || j.hello.Invite != invite.ID {
		return nil, commands.Refuse(commands.Validation, "hello without protocol %s, nonce or the join id's invite", join.Protocol)
	}
	if err := j.hello.Admit(); err != nil {
		return nil, err
	}
	if j.signer, err = h.DB.Signer(ctx); err != nil {
		return nil, err
	}
	if string(j.hello.Identity) == string(h.Keys.Identity.Public()) || string(j.hello.Signing) == string(j.signer.Public()) {
		return nil, &signing.Rejected{Code: signing.KeyDuplicate, Why: "key already belongs to this hub"}
	}
	conn, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	j.challenge = join.Challenge{Protocol: join.Protocol, Identity: h.Keys.Identity.Public(), Signing: j.signer.Public(),
		Sealing: h.Keys.Sealing.PublicKey().Bytes(), Conn: conn.String(), Epoch: 1, Name: h.Name, Nonce: join.Nonce()}
	raw, next, err := join.NewTranscript(r.Exporter).Hello(r.Body).Sign(h.Keys.Identity, j.challenge)
	if err != nil {
		return nil, err
	}
	j.transcript = next
	return raw, nil
}

// proof ends a handshake. The invite is used up, and connection and keys are
// stored, in one transaction; a caller who lost the answer may say all of it
// again with the same keys and gets the same connection.
func (h *Hub) proof(ctx context.Context, r transport.JoinRequest) ([]byte, error) {
	j := h.join.waiting[r.JoinID]
	if j == nil {
		return nil, commands.Refuse(commands.NotFound, "proof without a hello")
	}
	var p join.Proof
	if err := signing.DecodeBody(r.Body, &p); err != nil {
		return nil, err
	}
	if err := j.transcript.Check(p, j.invite.ProofKey, j.hello); err != nil {
		return nil, err
	}
	c, err := h.DB.AddConnection(ctx, store.NewConnection{
		Connection: store.Connection{ID: j.challenge.Conn, Peer: signing.InstanceIDOf(ed25519.PublicKey(j.hello.Identity)), Name: j.invite.Name,
			Authority: store.Commands, State: store.Pending, LinkKey: j.hello.LinkKey},
		Keys:  store.PeerKeys{Identity: j.hello.Identity, Signing: j.hello.Signing, Sealing: j.hello.Sealing},
		Signs: j.signer.KeyID(), Grant: store.FullGrant(), Invite: j.invite.ID, Actor: "invite:" + j.invite.ID})
	if err != nil {
		return nil, err
	}
	// The operator who made the invite approved whoever holds it.
	if c.State == store.Pending {
		if c, err = h.board.SetState(ctx, c.ID, store.Active, "joined with an invitation", "invite:"+j.invite.ID); err == nil {
			h.Log.InfoContext(ctx, "a spoke has joined", "connection", c.Name, "fingerprint", signing.Fingerprint(j.hello.Identity))
		}
	} else {
		err = h.board.Await(ctx, c.ID)
	}
	if err != nil {
		return nil, err
	}
	delete(h.join.waiting, r.JoinID)
	raw, _, err := j.transcript.Proof(r.Body).Sign(h.Keys.Identity, join.Accept{Conn: c.ID, Name: c.Name, State: string(c.State), Epoch: c.Epoch})
	return raw, err
}
