package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// A silentHub takes connections of those who join, and says nothing.
type silentHub struct {
	t        *testing.T
	listener *net.TCPListener
	token    string
}

func newSilentHub(t *testing.T) silentHub {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	token := join.NewToken(join.Token{Address: l.Addr().String(), Hub: "mi1" + signing.InstanceID(strings.Repeat("a", 32)), Pin: strings.Repeat("A", 43),
		ID: newID(), Name: "attic", Expires: time.Now().Add(time.Hour).UnixMilli()})
	text, err := token.Text()
	require.NoError(t, err)
	return silentHub{t, l, text}
}

// called reports whether somebody has connected.
func (h silentHub) called() bool {
	h.t.Helper()
	require.NoError(h.t, h.listener.SetDeadline(time.Now().Add(time.Millisecond)))
	conn, err := h.listener.Accept()
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// joinsAt runs spoke join in this process, with in as standard input.
func joinsAt(t *testing.T, in io.Reader, dir string, args ...string) said {
	t.Helper()
	var out, errOut bytes.Buffer
	a := &app{in: in, out: &out, err: &errOut, getenv: func(string) string { return "" }}
	code := run(t.Context(), a, append([]string{"--data-dir", dir, "spoke", "join"}, args...))
	return said{out.String(), errOut.String(), code}
}

// Before somebody agrees a hub hears nothing, and nothing is stored.
func TestNothingIsSentOrStoredBeforeAPersonAgrees(t *testing.T) {
	t.Parallel()
	h := newSilentHub(t)
	dir := filepath.Join(t.TempDir(), "S")
	keyboard, screen := aTerminal(t, 80)
	joins := func(pasted, answer string) said {
		_, err := keyboard.WriteString(h.token + "\n" + pasted)
		require.NoError(t, err)
		return answers(t, keyboard, screen, answer, "--data-dir", dir, "spoke", "join")
	}
	for _, answer := range []string{"n\n", "\n", "why\n", "\x04"} {
		s := joins("y\n", answer) // what is pasted behind the token is no answer
		require.Equal(t, exitMisuse, s.code, s.err)
		require.Contains(t, s.err, "join? [y/N] ")
		require.Contains(t, s.err, "nothing was sent to it or stored here, and the token is still good")
	}
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(h.token), 0o600))
	s := joinsAt(t, strings.NewReader("y\n"), dir, "--token-file", file, "--preset", "open")
	require.Equal(t, exitMisuse, s.code)
	require.NotContains(t, s.err, "[y/N]", "nobody is there to be asked")
	require.Contains(t, s.err, "spawnmesh --data-dir "+dir+" spoke join --preset open --yes --token-file "+file)
	s = joinsAt(t, strings.NewReader(h.token), dir, "-o", "json")
	require.Equal(t, exitMisuse, s.code)
	require.Regexp(t, `^\{"error":.*--yes.*\}\n$`, s.err)
	require.False(t, h.called())
	require.NoDirExists(t, dir)
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Empty(t, left, "what the host was tried out with is gone")

	go func() {
		if conn, err := h.listener.Accept(); err == nil {
			conn.Close()
		}
	}()
	require.Equal(t, exitUnreachable, joins("", "y\n").code)
	require.DirExists(t, dir)
}

// What joining means is said in words of the policy, and a policy that cannot be used is an error
// before anybody is asked.
func TestJoiningSaysWhatTheHubCouldDo(t *testing.T) {
	t.Parallel()
	h := newSilentHub(t)
	dir := t.TempDir()
	asks := func(args ...string) string {
		s := joinsAt(t, strings.NewReader(h.token), dir, args...)
		require.Contains(t, []int{exitMisuse, exitConflict}, s.code, s.err)
		return s.err
	}

	none, open := asks(), asks("--preset", "open")

	require.Contains(t, none, "policy: none; there is no "+policy.File(dir)+"\nso nothing may run here until the policy says otherwise\n")
	require.Contains(t, none, "hub: "+h.listener.Addr().String()+", mi1"+strings.Repeat("a", 32)+"; this host is attic there\n")
	require.Contains(t, open, "starts: any command\n")
	require.Contains(t, open, "agents at once: at most 4 (--slots)\n")
	require.Contains(t, asks("--preset", "opne"), "preset \"opne\" is not one of")
	rules := "version: 1\nruntimes: [exec]\ncommands: [date -u, {run: make **, env: {TOKEN: hunter2}}]\nenvironment: [CI]\ndirectories: [/srv]\n" +
		"limits: {timeout: 2h, memory: 1GiB}\nisolation: none\nallow_root_agents: true\n"
	require.NoError(t, os.WriteFile(policy.File(dir), []byte(rules), 0o600))
	require.NoError(t, os.WriteFile(configFile(dir), []byte("slots: 7\n"), 0o600))
	said := asks()
	for _, line := range []string{"starts: date -u, make **", "isolation: none", "runs in: /srv", "variables of an order: CI", "variables of the host: TOKEN",
		"time: 2h0m0s", "as good as a shell: make **", "agents at once: at most 7 (--slots)"} {
		require.Contains(t, said, "\n"+line+"\n")
	}
	require.Regexp(t, `(?m)^agents run as: .+, or whichever user runs the spoke$`, said)
	require.Contains(t, said, "\nother limits: 1GiB of memory")
	require.NotContains(t, said, "hunter2")
	require.LessOrEqual(t, strings.Count(said, "\n"), 20, said)
	require.Contains(t, asks("--preset", "open"), "there is a policy already")
	require.NoError(t, os.WriteFile(configFile(dir), []byte("slots: many\n"), 0o600))
	require.NotContains(t, asks(), "joining lets")
	require.NoError(t, os.WriteFile(policy.File(dir), []byte(rules+"color: red\n"), 0o600))
	bad := asks()
	require.Contains(t, bad, fmt.Sprintf("policy %s: ", policy.File(dir)))
	require.NotContains(t, bad, "joining lets")
	require.False(t, h.called())
}
