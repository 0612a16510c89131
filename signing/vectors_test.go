package signing

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/envelope.json anew from the recipes")

const vectorPath = "testdata/envelope.json"

// A vectorFile is testdata/envelope.json; docs/protocol.md says what its fields mean.
type vectorFile struct {
	Version    int          `json:"version"`
	Connection string       `json:"connection"`
	Epoch      int64        `json:"epoch"`
	Self       InstanceID   `json:"self"`
	State      string       `json:"state"`
	NowMS      int64        `json:"now_ms"`
	SkewMS     int64        `json:"skew_ms"`
	SeedsNote  string       `json:"seeds_note"`
	Keys       []vectorKey  `json:"keys"`
	Cases      []vectorCase `json:"cases"`
}

type vectorKey struct {
	Iss       InstanceID `json:"iss"`
	Kid       KeyID      `json:"kid"`
	PubHex    string     `json:"pub_hex"`
	NotBefore int64      `json:"not_before"`
	NotAfter  int64      `json:"not_after"`
	RevokedAt int64      `json:"revoked_at"`
}

type vectorCase struct {
	Name    string `json:"name"`
	Expect  string `json:"expect"`
	Why     string `json:"why,omitempty"`
	NowMS   int64  `json:"now_ms,omitempty"`
	State   string `json:"connection_state,omitempty"`
	Seen    bool   `json:"seen_valid_first,omitempty"`
	WireB64 string `json:"wire_b64"`
}

func loadVectors(t testing.TB) vectorFile {
	t.Helper()
	raw, err := os.ReadFile(vectorPath)
	require.NoError(t, err)
	var f vectorFile
	require.NoError(t, json.Unmarshal(raw, &f))
	return f
}

func (f vectorFile) verifier(t testing.TB) Verifier {
	t.Helper()
	v := Verifier{Self: f.Self, Conn: f.Connection, Epoch: f.Epoch, Keys: map[KeyID]PeerKey{}, Heads: &Heads{}}
	for _, k := range f.Keys {
		pub, err := hex.DecodeString(k.PubHex)
		require.NoError(t, err)
		v.Keys[k.Kid] = PeerKey{ID: k.Kid, Owner: k.Iss, Public: pub}
	}
	return v
}

// wire is the message of a case.
func (c vectorCase) wire(t testing.TB) []byte {
	t.Helper()
	if strings.HasPrefix(c.WireB64, "(generate") {
		return bytes.Repeat([]byte(" "), 300<<10)
	}
	raw, err := base64.StdEncoding.DecodeString(c.WireB64)
	require.NoError(t, err)
	return raw
}

// The database's own codes are not decided here; store runs the same file
// through its transaction and expects them.
var decidedByStore = map[string]bool{"REPLAY_SAME": true, "REPLAY_DIFF": true, "SEQ_REUSE": true,
	"CONN_STATE": true, "KEY_WINDOW": true, "KEY_REVOKED": true}

func TestVectors(t *testing.T) {
	f := loadVectors(t)
	recipes := vectorRecipes(t, f)
	if *update {
		f.Version, f.Cases = version, nil
		for _, r := range recipes {
			c := r.vectorCase
			if c.WireB64 == "" {
				c.WireB64 = base64.StdEncoding.EncodeToString(r.wire)
			}
			f.Cases = append(f.Cases, c)
		}
		raw, err := json.MarshalIndent(f, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(vectorPath, append(raw, '\n'), 0o644))
	}
	require.Len(t, f.Cases, len(recipes), "run: go test ./signing -run TestVectors -update")
	warm := f.verifier(t)
	for i, c := range f.Cases {
		t.Run(c.Name, func(t *testing.T) {
			if c.WireB64 != "(generate: see name)" {
				require.Equal(t, string(recipes[i].wire), string(c.wire(t)), "run: go test ./signing -run TestVectors -update")
			}
			now := time.UnixMilli(max(f.NowMS, c.NowMS))

			_, got := f.verifier(t).Open(c.wire(t), now)
			_, again := warm.Open(c.wire(t), now)

			want := c.Expect
			if decidedByStore[want] {
				want = "OK"
			}
			require.Equal(t, want, codeOf(got), "%v", got)
			require.Equal(t, want, codeOf(again), "by a receiver that has verified other messages before: %v", again)
		})
	}
}

// Every code of an envelope that a message by itself can have is in the vectors.
func TestVectorsHaveEveryCode(t *testing.T) {
	seen := map[Code]bool{}
	for _, c := range loadVectors(t).Cases {
		seen[Code(c.Expect)] = true
	}
	for _, code := range []Code{"OK", EnvSize, EnvCanon, EnvJSON, EnvType, EnvSigCount, EnvB64, KeyUnknown, SigBad, HdrJSON, HdrCanon, HdrField,
		KidMismatch, IssMismatch, AudMismatch, ConnUnknown, EpochStale, TimeTTL, TimeFuture, TimeExpired, BodyDigest,
		ConnState, KeyRevoked, KeyWindow, ReplaySame, ReplayDiff, SeqReuse} {
		require.True(t, seen[code], "no vector for %s", code)
	}
}
