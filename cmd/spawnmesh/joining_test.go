package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// invite makes a token on the hub and reads it.
func (h hand) invite(name string, args ...string) (string, join.Token) {
	h.t.Helper()
	text := strings.TrimSpace(h.do(append([]string{"invite", "--name", name}, args...)...))
	token, err := join.ParseToken(text)
	require.NoError(h.t, err)
	return text, token
}

// altered is the text of a token that somebody changed, with its own secret.
func altered(t *testing.T, token join.Token, change func(*join.Token)) string {
	t.Helper()
	change(&token)
	text, err := token.Text()
	require.NoError(t, err)
	return text
}

// joins runs spoke join with the token on standard input.
func (h hand) joins(code int, words, token string) said {
	h.t.Helper()
	s := h.run(token, "spoke", "join", "--yes")
	require.Equal(h.t, code, s.code, "%s%s", s.out, s.err)
	require.Contains(h.t, s.err, words)
	return s
}

// audits waits for a row of the audit with these words.
func (h hand) audits(words string) {
	h.t.Helper()
	require.NoError(h.t, fleet.Poll(h.t.Context(), time.Minute, "waiting for the audit to say "+words, func() (bool, error) {
		return strings.Contains(h.do("audit", "list", "-o", "ndjson"), words), nil
	}))
}

// Every way in which a join does not work, and that it leaves the token good for
// the one who holds it; then that it works once.
func TestJoiningByHand(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	h := hand{t: t, dir: m.Hub.Dir}
	s := hand{t: t, dir: filepath.Join(m.Dir, "attic")}
	text, token := h.invite("attic")
	foreign := join.Token{Hub: "mi1" + signing.InstanceID(strings.Repeat("a", 32)), Pin: strings.Repeat("A", 43), ID: newID()}
	missing := filepath.Join(m.Dir, "missing")

	s.refused(exitMisuse, "missing: no such file", "spoke", "join", "--token-file", missing)
	s.joins(exitMisuse, "there is no join token: standard input is empty", "\n")
	s.joins(exitMisuse, "copy the whole line", "garbage")
	s.joins(exitMisuse, "not a complete join token", text[:len(text)-1])
	expired := altered(t, token, func(k *join.Token) { k.Expires = time.Now().Add(-time.Hour).UnixMilli() })
	s.joins(exitUntrusted, "spawnmesh invite --name attic", expired)
	require.NoDirExists(t, s.dir, "nothing was made for a token that cannot work")
	s.joins(exitUntrusted, "somebody may stand between you", altered(t, token, func(k *join.Token) { k.Pin = foreign.Pin }))
	s.joins(exitUntrusted, "hub key differs", altered(t, token, func(k *join.Token) { k.Hub = foreign.Hub }))
	s.joins(exitUntrusted, "join token not accepted", altered(t, token, func(k *join.Token) { k.ID = foreign.ID }))
	s.joins(exitUnreachable, "127.0.0.1:1", altered(t, token, func(k *join.Token) { k.Address = "127.0.0.1:1" }))
	asJSON := s.run(altered(t, token, func(k *join.Token) { k.Pin = foreign.Pin }), "-o", "json", "spoke", "join", "--yes")
	require.Contains(t, asJSON.err, `"code":"PIN_MISMATCH"`)

	file := filepath.Join(m.Dir, "token")
	require.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
	joined := s.run("", "spoke", "join", "--yes", "--token-file", file)

	require.Zero(t, joined.code, "%s", joined.err)
	require.Regexp(t, `^joined hub lab as attic\nhub fingerprint +\S+\nour fingerprint +\S+\n$`, joined.out)
	require.Contains(t, joined.err, "nothing may run here yet; decide what may: spawnmesh --data-dir "+s.dir+" spoke policy init")
	require.NotContains(t, joined.err, "level=INFO")
	h.refused(exitConflict, "a connection named attic is there already", "invite", "--name", "attic")
	late := hand{t: t, dir: filepath.Join(m.Dir, "late")}
	late.joins(exitUntrusted, "join token not accepted", text)
	var views []hub.SpokeView
	h.read(&views, 0, "connections", "list")
	require.Len(t, views, 1, "all the others left nothing behind")
	h.audits("invite was used before")

	loft := hand{t: t, dir: filepath.Join(m.Dir, "loft")}
	t.Run("two tokens for one name", func(t *testing.T) {
		h.t, late.t = t, t
		first, _ := h.invite("cellar")
		second, _ := h.invite("cellar")
		joined := late.run(first, "spoke", "join", "--yes", "--preset", "commands")
		require.Zero(t, joined.code, joined.err)
		require.Contains(t, joined.err, "then start the spoke")
		require.NotContains(t, joined.err, "nothing may run here yet")
		rules, err := os.ReadFile(policy.File(late.dir))
		require.NoError(t, err)
		require.Equal(t, policy.Presets["commands"], string(rules))
		loft.t = t
		loft.joins(exitConflict, "a connection with cellar", second)
	})
	t.Run("a token that ran out on the hub", func(t *testing.T) {
		h.t, loft.t = t, t
		_, short := h.invite("loft", "--ttl", "1s")
		time.Sleep(time.Until(time.UnixMilli(short.Expires)) + time.Millisecond) // its end is the point
		later := altered(t, short, func(k *join.Token) { k.Expires += 1e6 })
		loft.joins(exitUntrusted, "join token not accepted", later)
	})
	t.Run("names and times", func(t *testing.T) {
		h.t = t
		h.refused(exitMisuse, "--name NAME", "invite")
		h.refused(exitMisuse, "lower-case letters", "invite", "--name", "At tic")
		h.refused(exitMisuse, "an invitation lives from 1s to", "invite", "--name", "x", "--ttl", "2d")
		h.refused(exitMisuse, "not a duration", "invite", "--name", "x", "--ttl", "soon")
		var v hub.Invitation
		h.read(&v, 0, "invite", "--name", "x", "--ttl", "90s")
		require.InDelta(t, 90, time.Until(v.Expires).Seconds(), 30)
		s := h.run("", "invite", "--name", "y")
		require.Regexp(t, `^amj1\.\S+\n$`, s.out)
		require.Contains(t, s.err, "this hub's fingerprint is "+v.Fingerprint+", its id mi1")
		require.Contains(t, s.err, "note: the token works on this machine only: it leads to 127.0.0.1:")
	})
}

// Whose first answer was lost and whose hub has suspended the connection since hears that, and not
// that all is well.
func TestAJoinSaysThatTheHubHoldsItBack(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	h, first, again, third := hand{t: t, dir: m.Hub.Dir}, fresh(t), fresh(t), fresh(t)
	text, _ := h.invite("attic")
	first.joins(0, "then start the spoke", text)
	h.do("connections", "suspend", "attic", "--reason", "holiday")
	for _, s := range []hand{again, third} { // they know of no connection yet
		require.NoError(t, exec.Command("cp", "-a", filepath.Join(first.dir, "keys"), s.dir).Run())
	}

	joined := again.joins(0, "lab says that the connection is suspended: nothing goes over it until the hub's operator resumes it, with: spawnmesh connections resume ", text)

	require.Regexp(t, `(?m)^connection +suspended by lab$`, joined.out)
	asJSON := third.run(text, "-o", "ndjson", "spoke", "join", "--yes")
	require.Contains(t, asJSON.out, `"peer_says":{"state":"suspended"}`, asJSON.err)
}
