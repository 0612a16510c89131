package signing

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func seedSigner(t testing.TB, b byte) *Signer {
	t.Helper()
	s, err := NewSigner(bytes.Repeat([]byte{b}, 32))
	require.NoError(t, err)
	return s
}

func codeOf(err error) string {
	if err == nil {
		return "OK"
	}
	return string(err.(*Rejected).Code)
}

// sealed is a message that is a tree of one.
func sealed(t testing.TB, change func(*Header)) ([]byte, Verifier, time.Time) {
	t.Helper()
	id, key := seedSigner(t, 1), seedSigner(t, 2)
	now := time.UnixMilli(1795201200000)
	h := Header{ID: "0193a3c0-2222-7aaa-8bbb-00000000000a", Kind: "agent.spawn", Iss: InstanceIDOf(id.Public()),
		Aud: InstanceIDOf(seedSigner(t, 3).Public()), Conn: "0193a3c0-1111-7aaa-8bbb-000000000001", Epoch: 1, Seq: 1,
		Iat: now.UnixMilli(), Exp: now.Add(time.Hour).UnixMilli(), Wsp: "main"}
	if change != nil {
		change(&h)
	}
	s, err := key.Seal(Command, h, []byte(`{"task":"x"}`))
	require.NoError(t, err)
	v := Verifier{Self: h.Aud, Conn: h.Conn, Epoch: 1, Keys: map[KeyID]PeerKey{
		key.KeyID(): {key.KeyID(), InstanceIDOf(id.Public()), key.Public()}}}
	return s.Envelope, v, now
}

func TestSealedMessageOpens(t *testing.T) {
	envelope, v, now := sealed(t, nil)

	got, err := v.Open(envelope, now)

	require.NoError(t, err)
	require.Equal(t, Command, got.Type())
	require.Equal(t, `{"task":"x"}`, string(got.Body()))
	require.Equal(t, envelope, got.Envelope())
}

// Every single flipped bit must be refused with one of the codes and never
// panic: row 11 of the bad inputs.
func TestNoFlippedBitIsAccepted(t *testing.T) {
	envelope, v, now := sealed(t, nil)
	for i := range envelope {
		for bit := range 8 {
			bad := bytes.Clone(envelope)
			bad[i] ^= 1 << bit

			_, err := v.Open(bad, now)

			r, ok := err.(*Rejected)
			require.True(t, ok && r.Code != "", "byte %d bit %d: %v", i, bit, err)
		}
	}
}

func TestSealRefusesWhatNobodyWouldAccept(t *testing.T) {
	key := seedSigner(t, 2)
	_, err := key.Seal(Command, Header{ID: "nope"}, nil)
	require.ErrorContains(t, err, "header field id")
}

func TestVerifyNeverPanics(t *testing.T) {
	s := seedSigner(t, 1)
	sig := s.Sign(Command, []byte("x"))
	for n := range 65 {
		key := make([]byte, n)
		require.False(t, Verify(key, Command, []byte("x"), sig), "key of %d bytes", n)
		require.False(t, Verify(s.Public(), Command, []byte("x"), make([]byte, n)), "signature of %d bytes", n)
	}
	require.True(t, Verify(s.Public(), Command, []byte("x"), sig))
	require.False(t, Verify(s.Public(), Result, []byte("x"), sig), "another type")
}

func TestAdmitKey(t *testing.T) {
	good := seedSigner(t, 1).Public()
	mixed := unhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa")
	tests := map[string]struct {
		key ed25519.PublicKey
		ok  bool
	}{
		"an honest key":                  {good, true},
		"empty":                          {nil, false},
		"31 bytes":                       {good[:31], false},
		"33 bytes":                       {append(bytes.Clone(good), 0), false},
		"the identity point":             {unhex("01" + strings.Repeat("00", 31)), false},
		"all zero":                       {make([]byte, 32), false},
		"order 8 with the sign bit":      {mixed, false},
		"y = p, another spelling of 0":   {fieldPrime, false},
		"y = p+1, another spelling of 1": {unhex("ee" + strings.Repeat("ff", 30) + "7f"), false},
		"y = 2^255-1":                    {unhex(strings.Repeat("ff", 32)), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := AdmitKey(tt.key)
			if tt.ok {
				require.NoError(t, err)
				return
			}
			require.Equal(t, "KEY_WEAK", codeOf(err))
		})
	}
}

func TestDecodeBody(t *testing.T) {
	type inner struct {
		A string `json:"a,omitempty"`
	}
	type body struct {
		Task  string   `json:"task"`
		Argv  []string `json:"argv,omitempty"`
		N     int      `json:"n,omitempty"`
		Inner *inner   `json:"inner,omitempty"`
	}
	deep := strings.Repeat("[", 33) + strings.Repeat("]", 33)
	tests := map[string]struct{ in, want string }{
		"good":                   {`{"task":"x","argv":["a"]}`, ""},
		"duplicate name":         {`{"task":"x","task":"y"}`, ".task"},
		"nested duplicate name":  {`{"inner":{"a":"1","a":"2"}}`, ".inner.a"},
		"case folded name":       {`{"TASK":"x"}`, "lower case"},
		"unknown field":          {`{"tusk":"x"}`, "unknown field"},
		"null":                   {`{"task":null}`, "null"},
		"top level null":         {`null`, "null"},
		"33 levels":              {`{"argv":` + deep + `}`, "32 levels"},
		"100,000 levels":         {strings.Repeat("[", 100000), "32 levels"},
		"NaN":                    {`{"n":NaN}`, ".n"},
		"lone surrogate":         {`{"task":"\ud800"}`, ".task"},
		"invalid UTF-8":          {"{\"task\":\"\xff\"}", "UTF-8"},
		"trailing bytes":         {`{"task":"x"} {}`, "after its end"},
		"empty":                  {``, "EOF"},
		"a fraction for an int":  {`{"n":1.5}`, "cannot be read"},
		"an object for a string": {`{"task":{}}`, "cannot be read"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := DecodeBody([]byte(tt.in), &body{})
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, "BODY_JSON", codeOf(err))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"task":"x","argv":["a"]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var v struct {
			Task string   `json:"task"`
			Argv []string `json:"argv"`
		}
		_ = DecodeBody(in, &v)
	})
}

func FuzzKeyFile(f *testing.F) {
	f.Add([]byte(`{"v":1,"use":"signing","seed":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="}`), false)
	f.Fuzz(func(t *testing.T, in []byte, identity bool) {
		name := signingFile
		if identity {
			name = identityFile
		}
		seed, why := parseKey(in, name)
		require.Equal(t, why == "", len(seed) == 32)
	})
}

// Who has another version is told which one this is.
func TestAnotherVersionIsRefusedByItsName(t *testing.T) {
	envelope, v, now := sealed(t, nil)
	for typ, want := range map[string]string{
		"application/vnd.spawnmesh.command.v1+json":   "ENV_TYPE: a message of version 1; this node speaks version 2",
		"application/vnd.spawnmesh.command.v12+json":  "ENV_TYPE: a message of version 12; this node speaks version 2",
		"application/vnd.spawnmesh.command.v+json":    "ENV_TYPE: unknown message type; this node speaks version 2",
		"application/vnd.spawnmesh.handshake.v1+json": "ENV_TYPE: unknown message type; this node speaks version 2",
	} {
		_, err := v.Open(bytes.Replace(envelope, []byte(Command), []byte(typ), 1), now)
		require.EqualError(t, err, want, typ)
	}
}
