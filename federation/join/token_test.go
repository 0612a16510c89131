package join

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/signing"
)

// aToken is a token with everything in it, under a random secret.
func aToken(t testing.TB) (Token, string) {
	t.Helper()
	cert, err := transport.Certificate(signerOf(t, "tls"))
	require.NoError(t, err)
	token := NewToken(Token{Address: "hub.example.org:7422", Hub: signing.InstanceIDOf(keyOf(t, "hub").Public()), Pin: transport.Pin(cert),
		ID: "0193a3c0-2222-7aaa-8bbb-00000000000a", Name: "attic", Expires: 1_700_000_000_000})
	text, err := token.Text()
	require.NoError(t, err)
	return token, text
}

func TestATokenReadsBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	token, text := aToken(t)

	for name, carried := range map[string]string{"as it is": text, "with its newline": text + "\n", "pasted with blanks": " \t" + text + "\r\n"} {
		got, err := ParseToken(carried)

		require.NoError(t, err, name)
		require.Equal(t, token, got, name)
		require.Equal(t, token.ProofKey(), got.ProofKey(), name)
	}
	require.NotContains(t, text, "\n", "a token is one line")
}

func TestWhatIsNoToken(t *testing.T) {
	t.Parallel()
	_, text := aToken(t)
	head, secret, _ := strings.Cut(strings.TrimPrefix(text, tokenPrefix), ".")
	with := func(change func(map[string]any)) string {
		raw, err := base64.RawURLEncoding.DecodeString(head)
		require.NoError(t, err)
		fields := map[string]any{}
		require.NoError(t, json.Unmarshal(raw, &fields))
		change(fields)
		raw, err = json.Marshal(fields)
		require.NoError(t, err)
		return tokenPrefix + base64.RawURLEncoding.EncodeToString(raw) + "." + secret
	}
	set := func(field string, value any) string { return with(func(m map[string]any) { m[field] = value }) }
	tests := map[string]string{
		"nothing":                        "",
		"the prefix alone":               tokenPrefix,
		"another prefix":                 "amj2." + head + "." + secret,
		"no prefix":                      head + "." + secret,
		"no secret":                      tokenPrefix + head + ".",
		"no second part":                 tokenPrefix + head,
		"a third part":                   text + ".x",
		"a newline in the middle":        tokenPrefix + head[:40] + "\n" + head[40:] + "." + secret,
		"a newline in the secret":        tokenPrefix + head + "." + secret[:20] + "\n" + secret[20:],
		"padding":                        text + "=",
		"a secret of 31 bytes":           tokenPrefix + head + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 31)),
		"a secret of 33 bytes":           tokenPrefix + head + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 33)),
		"standard base64":                tokenPrefix + head + "." + strings.Repeat("+", 43),
		"a second spelling of the bytes": text[:len(text)-1] + string(text[len(text)-1]+1),
		"too long":                       text + strings.Repeat(" ", 4096),
		"no JSON":                        tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte("attic")) + "." + secret,
		"JSON in another order":          with(func(map[string]any) {}),
		"a field nobody knows":           set("x", 1),
		"a hub that is no instance":      set("hub", "mi1x"),
		"a pin that is none":             set("pin", "short"),
		"an invite that is no UUID":      set("id", "1"),
		"an address without a port":      set("address", "hub.example.org"),
		"an address that is a path":      set("address", "/run/hub:7422"),
		"an address with credentials":    set("address", "user@hub:7422"),
		"a name that is none":            set("name", "At tic"),
		"a name with a dot":              set("name", "a.b"),
	}
	for name, bad := range tests {
		_, err := ParseToken(bad)
		require.ErrorIs(t, err, ErrToken, name)
	}
	for cut := range text {
		_, err := ParseToken(text[:cut])
		require.ErrorIs(t, err, ErrToken, "cut to %d characters", cut)
	}
}

// Nothing that prints a token, or anything a token is part of, gives away its
// secret.
func TestATokenNeverPrintsItsSecret(t *testing.T) {
	t.Parallel()
	token, _ := aToken(t)
	secret := token.secret[:]
	type inside struct{ token Token }
	var said bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		fmt.Fprintf(&said, verb+"\n", token)
		fmt.Fprintf(&said, verb+"\n", &token)
		fmt.Fprintf(&said, verb+"\n", []Token{token})
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%d", "%x"} { // fmt asks no method of what a field hides
		fmt.Fprintf(&said, verb+"\n", inside{token})
		fmt.Fprintf(&said, verb+"\n", &inside{token})
	}
	slog.New(slog.NewTextHandler(&said, nil)).Info("x", "token", token, "in", inside{token})
	slog.New(slog.NewJSONHandler(&said, nil)).Info("x", "token", token, "in", inside{token})
	raw, err := json.Marshal(token)
	require.NoError(t, err)
	said.Write(raw)

	text := strings.ToLower(said.String())

	require.Contains(t, text, "join token "+token.ID)
	for name, form := range map[string]string{
		"bytes": string(secret), "hex": hex.EncodeToString(secret), "hex with 0x": fmt.Sprintf("%#x", secret[:4]),
		"decimals": strings.Trim(fmt.Sprint(secret[:4]), "[]"), "Go syntax": strings.Trim(fmt.Sprintf("%#v", secret[:4]), "[]byte{}"),
		"base64url": base64.RawURLEncoding.EncodeToString(secret), "base64": base64.StdEncoding.EncodeToString(secret),
	} {
		require.NotContains(t, text, strings.ToLower(form), name)
	}
}

func TestWhatIsLeftOfAToken(t *testing.T) {
	t.Parallel()
	token, _ := aToken(t)

	require.Zero(t, token.Left(time.UnixMilli(token.Expires)))
	require.Equal(t, -time.Millisecond, token.Left(time.UnixMilli(token.Expires+1)))
	require.Equal(t, time.Hour, token.Left(time.UnixMilli(token.Expires).Add(-time.Hour)))
}

func TestAddressesThatATokenCanName(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"127.0.0.1:7422", "hub.example.org:1", "[::1]:65535", "HUB:443"} {
		require.True(t, ValidAddress(good), good)
	}
	for _, bad := range []string{"", "hub", "hub:", ":7422", "hub:0", "hub:65536", "hub:7422/x", "::1:7422", "[::1]", "hub:port", "a:b:1", "tls://hub:7422", "hub:7422\n", "hub:+22"} {
		require.False(t, ValidAddress(bad), bad)
	}
}

func TestTwoTokensShareNothing(t *testing.T) {
	t.Parallel()
	a, _ := aToken(t)
	b, _ := aToken(t)

	require.NotEqual(t, *a.secret, *b.secret)
	require.NotEqual(t, a.ProofKey(), b.ProofKey())
	require.NotContains(t, string(a.ProofKey()), string(a.secret[:8]), "a hub that is read gives away no secret")
}

// What is accepted has one spelling: what comes out is what went in.
func FuzzToken(f *testing.F) {
	_, text := aToken(f)
	f.Add(text)
	f.Add(text + "\n")
	f.Add(tokenPrefix + ".")
	f.Add("amj1.e30.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add(strings.ReplaceAll(text, ".", "\n."))
	f.Fuzz(func(t *testing.T, in string) {
		token, err := ParseToken(in)
		if err != nil {
			require.ErrorIs(t, err, ErrToken)
			return
		}

		out, err := token.Text()

		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(in), out)
	})
}
