package backlog

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Grant is the proof that a claim handed out: this attempt of this task may
// start until Expires. It is signed with HMAC-SHA-256 under a key of this
// instance and means nothing to any other.
type Grant struct {
	Fence   Fence     `json:"fence"`
	KeyID   string    `json:"key_id"`
	Expires time.Time `json:"expires_at"`
}

// Lifetimes of grant keys: each signs for a day and verifies for as long as the
// last grant that it signed can live, so keys overlap and none fails early.
const (
	keySigns   = 24 * time.Hour
	keyOverlap = MaxLease + time.Hour
	keyFresh   = time.Minute // how long a process may sign with what it read
)

// grantText is cg1.KID.TASK.ATTEMPT.EPOCH.EXPIRES.MAC; EXPIRES is in
// milliseconds of Unix time, MAC is base64url without padding.
const grantText = "cg1"

type grantKey struct {
	kid  string
	mu   sync.Mutex // guards the rest
	hash hash.Hash  // HMAC with the secret; a reset brings it back to behind the key
	text []byte     // of the last grant, to be used again
}

func newGrantKey(kid string, secret []byte) *grantKey {
	return &grantKey{kid: kid, hash: hmac.New(sha256.New, secret)}
}

// mac appends the MAC of a grant's text to sum. The caller has mu.
func (k *grantKey) mac(sum []byte, workspace string, signed []byte) []byte {
	k.hash.Reset()
	io.WriteString(k.hash, workspace)
	k.hash.Write([]byte{0}) // no workspace's name has it, so no two texts run together
	k.hash.Write(signed)
	return k.hash.Sum(sum)
}

func (k *grantKey) sign(workspace string, f Fence, until time.Time) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := append(append(append(k.text[:0], grantText+"."...), k.kid...), '.')
	b = append(append(b, f.Task...), '.')
	for _, n := range []int64{int64(f.Attempt), f.Epoch, until.UnixMilli()} {
		b = append(strconv.AppendInt(b, n, 10), '.')
	}
	var sum [sha256.Size]byte
	k.text = base64.RawURLEncoding.AppendEncode(b, k.mac(sum[:0], workspace, b[:len(b)-1]))
	return string(k.text)
}

// verifies reports whether sum is the MAC of a grant's text.
func (k *grantKey) verifies(sum []byte, workspace, signed string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return hmac.Equal(sum, k.mac(nil, workspace, []byte(signed)))
}

// grantKeys remembers the key that signs, for a minute.
type grantKeys struct {
	mu   sync.Mutex // guards the rest
	key  *grantKey
	read time.Time
}

func (g *grantKeys) forget() {
	g.mu.Lock()
	g.read = time.Time{}
	g.mu.Unlock()
}

// current returns the key to sign with; the first claim ever makes one.
func (g *grantKeys) current(ctx context.Context, tx *store.Tx) (*grantKey, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.read) < keyFresh {
		return g.key, nil
	}
	var kid string
	var secret []byte
	err := tx.QueryRow(ctx, `SELECT kid, secret FROM grant_keys WHERE signs_until > now() + interval '2 minutes' ORDER BY created_at DESC LIMIT 1`).Scan(&kid, &secret)
	if err == pgx.ErrNoRows {
		return makeGrantKey(ctx, tx) // not remembered: the transaction may yet fail
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key for claim grants: %w", err)
	}
	g.key, g.read = newGrantKey(kid, secret), time.Now()
	return g.key, nil
}

func makeGrantKey(ctx context.Context, tx *store.Tx) (*grantKey, error) {
	raw := make([]byte, 40)
	rand.Read(raw)
	kid, secret := hex.EncodeToString(raw[:8]), raw[8:]
	_, err := tx.Exec(ctx, `INSERT INTO grant_keys (kid, secret, signs_until, verifies_until) VALUES ($1, $2, now() + $3::interval, now() + $4::interval)`,
		kid, secret, keySigns, keySigns+keyOverlap)
	if err != nil {
		return nil, fmt.Errorf("making a key for claim grants: %w", err)
	}
	return newGrantKey(kid, secret), nil
}

// RotateGrantKey makes a new key, with which every claim is signed from within
// a minute on. What older keys signed stays valid until it expires.
func (ws *Workspace) RotateGrantKey(ctx context.Context) (kid string, err error) {
	const doing = "rotating the key of claim grants"
	if err := ws.mayInstance(doing); err != nil {
		return "", err
	}
	err = ws.tx(ctx, doing, func(ctx context.Context, tx *store.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE grant_keys SET signs_until = least(signs_until, now())`); err != nil {
			return err
		}
		k, err := makeGrantKey(ctx, tx)
		if err != nil {
			return err
		}
		kid = k.kid
		ws.audit(tx, "grant_key.rotated", kid, "", "")
		return nil
	})
	ws.backlog.grantKeys.forget()
	return kid, err
}

// ParseGrant reads the parts of a grant without believing them.
func ParseGrant(text string) (g Grant, signed string, mac []byte, err error) {
	malformed := commands.Refuse(commands.GrantMalformed, "%q is not a claim grant", commands.Clip(text)).Hinting("pass the whole grant that claim printed")
	parts := strings.Split(text, ".")
	if len(text) > 512 || len(parts) != 7 || parts[0] != grantText {
		return g, "", nil, malformed
	}
	g.KeyID = parts[1]
	if g.Fence, err = ParseFence(parts[2] + "/" + parts[3] + "/" + parts[4]); err != nil {
		return g, "", nil, malformed
	}
	ms, err := strconv.ParseInt(parts[5], 10, 64)
	mac, err2 := base64.RawURLEncoding.Strict().DecodeString(parts[6])
	if err != nil || err2 != nil || len(mac) != sha256.Size || ms < 0 || strconv.FormatInt(ms, 10) != parts[5] {
		return g, "", nil, malformed
	}
	g.Expires = time.UnixMilli(ms)
	return g, strings.TrimSuffix(text, "."+parts[6]), mac, nil
}

// VerifyGrant tells whether a grant still lets its attempt go on, with one code
// per cause: GRANT_MALFORMED, GRANT_KEY_UNKNOWN, GRANT_MISMATCH, GRANT_EXPIRED,
// and GRANT_UNKNOWN when no open attempt was given it.
func (ws *Workspace) VerifyGrant(ctx context.Context, text string) (Grant, error) {
	g, signed, mac, err := ParseGrant(text)
	if err != nil {
		return g, err
	}
	err = ws.read(ctx, "verifying a claim grant", func(ctx context.Context, tx *store.Tx) error {
		var secret []byte
		var expired, open bool
		err := tx.QueryRow(ctx, statement("verify_grant"),
			g.KeyID, g.Expires, g.Fence.Task, g.Fence.Attempt, g.Fence.Epoch).Scan(&secret, &expired, &open)
		switch {
		case err == pgx.ErrNoRows:
			return commands.Refuse(commands.GrantKeyUnknown, "the grant is signed with key %s, which this instance does not have", commands.Clip(g.KeyID)).Hinting("claim again here")
		case err != nil:
			return err
		case !newGrantKey(g.KeyID, secret).verifies(mac, ws.name, signed):
			return commands.Refuse(commands.GrantMismatch, "the grant's signature does not fit what it says; it was changed, or belongs to another workspace")
		case expired:
			return commands.Refuse(commands.GrantExpired, "the grant expired at %s", g.Expires.UTC().Format(time.RFC3339)).Hinting("claim the task again")
		case !open:
			return commands.Refuse(commands.GrantUnknown, "no open attempt of task %s was given this grant: it has ended or was claimed again", g.Fence.Task)
		}
		return nil
	})
	return g, err
}
