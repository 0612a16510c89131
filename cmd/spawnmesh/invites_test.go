package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// invites returns what the hub's operator sees of all invites.
func (h hand) invites() (list []store.InviteView) {
	h.t.Helper()
	h.read(&list, 0, "invite", "list")
	return list
}

// An operator sees what became of each invite and ends those that are open; who
// comes with a token that has ended hears one sentence, the audit says why.
func TestInvitesByHand(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: filepath.Join(m.Dir, "attic")}
	require.Contains(t, h.run("", "invite", "list").err, "no invites; make one: spawnmesh --data-dir "+h.dir+" invite --name NAME")
	first, token := h.invite("attic")
	_, second := h.invite("attic")
	_, short := h.invite("short", "--ttl", "1s")

	require.Regexp(t, `(?m)^short +\w+ +\S+ \S+ +uid:\d+ +`+short.ID+`\nattic +open .*`+second.ID+`\nattic +open .*`+token.ID+`$`, h.do("invite", "list"))
	require.Equal(t, short.ID+"\n"+second.ID+"\n"+token.ID+"\n", h.do("invite", "list", "-o", "name"))
	require.Equal(t, 3, strings.Count(h.do("invite", "list", "-o", "ndjson"), "\n"))
	requireAligned(t, h.do("invite", "list", "-o", "wide"))
	require.NotContains(t, h.do("invite", "list", "-o", "json"), "proof")
	h.refused(exitNotFound, "see: spawnmesh --data-dir "+h.dir+" invite list", "invite", "revoke", "nowhere")
	h.refused(exitMisuse, `"attic" fits 2 open invites`, "invite", "revoke", "attic")
	h.refused(exitMisuse, "invite revoke takes ID|NAME and got none", "invite", "revoke")

	require.Equal(t, "the invite for attic is revoked\n", h.do("invite", "revoke", token.ID, "--reason", "mailed around"))

	require.Equal(t, "the invite for attic is revoked\n", h.do("invite", "revoke", token.ID), "once more is no error")
	require.Equal(t, 1, strings.Count(h.do("audit", "list", "-o", "ndjson"), `"invite.revoked"`))
	require.Contains(t, h.do("audit", "list", "-o", "ndjson"), "mailed around")
	s.joins(exitUntrusted, "the hub refuses: join token not accepted", first)
	h.audits("invite was revoked")
	require.Equal(t, second.ID+"\n", h.do("invite", "revoke", "attic", "-o", "name"), "the one that is open")
	time.Sleep(time.Until(time.UnixMilli(short.Expires)) + time.Millisecond) // its end is the point
	h.refused(exitConflict, "has expired already", "invite", "revoke", "short")
	good, third := h.invite("attic")
	s.joins(0, "then start the spoke", good)
	h.refused(exitConflict, "was used already", "invite", "revoke", third.ID)
	list := h.invites()
	require.Len(t, list, 4)
	for i, want := range []store.InviteState{store.InviteUsed, store.InviteExpired, store.InviteRevoked, store.InviteRevoked} {
		require.Equal(t, want, list[i].State)
	}
	require.Len(t, list[0].Connection, 36)
	require.NotNil(t, list[2].RevokedAt)
	s.refused(exitUnreachable, "no instance runs", "invite", "list")
}

// A hub that serves on every address has to be told what a token can name.
func TestAnInviteSaysHowToReachTheHub(t *testing.T) {
	t.Parallel()
	everywhere := startHub(t, "--link", "0.0.0.0:0")
	told := startHub(t, "--link", "0.0.0.0:0", "--advertise", "hub.example.org:7422")
	h := hand{t: t, dir: everywhere.Hub.Dir}

	h.refused(exitMisuse, "--advertise HOST:PORT", "invite", "--name", "attic")

	hasSaid(t, everywhere.Hub, regexp.MustCompile("nobody can be invited to this hub"))
	require.Empty(t, h.invites())
	require.NotContains(t, told.Hub.LastWords(), "nobody can be invited")
	h.dir = told.Hub.Dir
	_, token := h.invite("attic")
	require.Equal(t, "hub.example.org:7422", token.Address)
	require.NotContains(t, h.run("", "invite", "--name", "attic").err, "this machine only")
	var v hub.Invitation
	h.read(&v, 0, "invite", "--name", "attic")
	require.Equal(t, "hub.example.org:7422", v.Address)
	require.Empty(t, v.Note)
	for address, says := range map[string]string{"0.0.0.0:7422": "spokes cannot dial", ":7422": "spokes cannot dial", "[::]:7422": "spokes cannot dial",
		"hub.example.org": "is not an address of the form HOST:PORT", "tls://hub:7422": "is not an address", "hub:0": "is not an address"} {
		fresh(t).refused(exitMisuse, says, "hub", "run", "--link", "127.0.0.1:0", "--advertise", address)
	}
}

// What can be known on this host is checked before the token is spent: a join
// that fails here leaves the invite as it was.
func TestAJoinThatFailsHereLeavesTheInvite(t *testing.T) {
	t.Parallel()
	m, other := startHub(t), startHub(t)
	h, s := hand{t: t, dir: m.Hub.Dir}, fresh(t)
	text, token := h.invite("attic")
	open := func(id string) {
		t.Helper()
		for _, v := range h.invites() {
			require.True(t, v.ID != id || v.State == store.InviteOpen, "%s is %s", v.ID, v.State)
		}
		require.NotContains(t, h.do("audit", "list", "-o", "ndjson"), "join.refused")
	}
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), mode))
	}

	write("policy.yaml", "version: 1\nruntime: [exec]\n", 0o644)
	s.joins(exitMisuse, "policy.yaml", text)
	require.NoDirExists(t, filepath.Join(s.dir, "keys"), "nothing was made")
	require.NoError(t, os.Remove(filepath.Join(s.dir, "policy.yaml")))
	s.joins(exitUntrusted, "this host's clock", altered(t, token, func(k *join.Token) { k.Expires += (3 * 24 * time.Hour).Milliseconds() }))
	expired := altered(t, token, func(k *join.Token) { k.Expires = time.Now().Add(-time.Hour).UnixMilli() })
	s.joins(exitUntrusted, "has expired, 1h", expired)
	away := s
	away.env = []string{"DATABASE_URL=postgres://127.0.0.1:1/none"}
	away.joins(exitUnreachable, "opening the database", text)
	require.NoDirExists(t, filepath.Join(s.dir, "keys"), "nothing was made for a database that is away")
	h.joins(exitConflict, "this instance made that token itself", text)
	_, err := signing.CreateKeys(filepath.Join(s.dir, "keys"))
	require.NoError(t, err)
	key := filepath.Join(s.dir, "keys", "signing.json")
	require.NoError(t, os.Chmod(key, 0o644))
	s.joins(exitMisuse, "chmod 600", text)
	require.NoError(t, os.Chmod(key, 0o600))
	open(token.ID)

	s.joins(0, "spoke policy init", text)

	again, second := h.invite("loft")
	said := s.joins(exitConflict, "has joined that hub already: connection lab, active", altered(t, second, func(k *join.Token) { k.Address = "127.0.0.1:1" }))
	s.joins(exitConflict, "has joined that hub already", again)
	require.Contains(t, said.err, "spawnmesh --data-dir "+s.dir+" connections revoke lab --reason WHY")
	open(second.ID)
	h.dir = other.Hub.Dir // the other hub is called lab, too
	elsewhere, third := h.invite("attic")
	said = s.joins(exitConflict, "a connection named lab is here already", elsewhere)
	require.Contains(t, said.err, "the token is still good: let the new hub call itself otherwise (hub run --name NAME) and join again")
	open(third.ID)
}

// A token in a file is its owner's only, whatever the umask. A file that is there is not
// written over, and nothing is asked for that cannot be written.
func TestATokenInAFile(t *testing.T) {
	t.Parallel()
	h := hand{t: t, dir: startHub(t).Hub.Dir}
	file := filepath.Join(t.TempDir(), "token")

	require.Empty(t, h.do("invite", "--name", "attic", "--out", file))

	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	token, err := join.ParseToken(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	require.Equal(t, token.ID, h.invites()[0].ID)
	h.refused(exitConflict, "there is a file "+file+" already", "invite", "--name", "barn", "--out", file)
	h.refused(exitMisuse, "the token cannot be written", "invite", "--name", "barn", "--out", file+"/x")
	other := filepath.Join(t.TempDir(), "token")
	require.NotContains(t, h.do("invite", "--name", "loft", "--out", other, "-o", "json"), "amj1")
	require.Len(t, h.invites(), 2)
	h.refused(exitMisuse, "an invitation lives from 1s to 1d", "invite", "--name", "barn", "--ttl", "48h", "--out", other+"2")
	require.NoFileExists(t, other+"2")
}
