package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// certify makes a certificate that is its own authority, for names on loopback, until then.
func certify(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until, DNSNames: []string{"localhost", "hub.test"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, own.Public(), own)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}

// away is a hand on another machine: it has no data directory, and contexts of its own.
type away struct {
	t      *testing.T
	config string
}

func (h away) run(stdin string, args ...string) said {
	h.t.Helper()
	c := exec.CommandContext(h.t.Context(), program, args...)
	c.Env = append(os.Environ(), "XDG_CONFIG_HOME="+h.config, "XDG_STATE_HOME="+filepath.Join(h.config, "none"), "SPAWNMESH_DATA_DIR=", "HOME="+h.config)
	var out, errOut bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errOut
	if err := c.Run(); c.ProcessState == nil {
		require.NoError(h.t, err)
	}
	return said{out.String(), errOut.String(), c.ProcessState.ExitCode()}
}

func (h away) do(args ...string) string {
	h.t.Helper()
	s := h.run("", args...)
	require.Zero(h.t, s.code, "%v: %s%s", args, s.out, s.err)
	return s.out
}

func (h away) refused(code int, words string, args ...string) {
	h.t.Helper()
	s := h.run("", args...)
	require.Equal(h.t, code, s.code, "%v: %s%s", args, s.out, s.err)
	require.Contains(h.t, s.err, words)
}

// has makes the file of a token that the hub's owner has made.
func (h away) has(m *fleet.Mesh, name string, role api.Role, args ...string) (file string) {
	h.t.Helper()
	file = filepath.Join(h.config, name)
	owner := hand{t: h.t, dir: m.Hub.Dir}
	owner.do(append([]string{"token", "create", "--name", name, "--role", string(role), "--workspace", "*", "--out", file}, args...)...)
	return file
}

var apiAt = regexp.MustCompile(`api (https?)://127\.0\.0\.1:(\d+)`)

// A hub on another machine is asked with the same commands as one here, and what stands in the way is said
// with what to do about it.
func TestAHubOnAnotherMachineByHand(t *testing.T) {
	t.Parallel()
	cert, key := certify(t, time.Now().Add(time.Hour))
	m := startHub(t, "--api", "127.0.0.1:0", "--api-cert", cert, "--api-key", key)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s"))
	at := hasSaid(t, m.Hub, apiAt)
	url := "https://localhost:" + at[2]
	h := away{t, t.TempDir()}
	operator, viewer := h.has(m, "ops", api.Operator), h.has(m, "board", api.Viewer)
	require.Contains(t, h.run("", "context", "list").err, "no contexts; add one")
	h.refused(exitMisuse, "a context needs an address", "context", "add", "lab")
	h.refused(exitMisuse, "is not the address of a hub", "context", "add", "lab", "--url", "hub.example.org", "--token-file", operator)
	h.refused(exitMisuse, "would travel in the clear", "context", "add", "lab", "--url", "http://hub.example.org", "--token-file", operator)

	h.do("context", "add", "lab", "--url", url, "--token-file", operator, "--ca", cert)
	h.do("context", "add", "board", "--url", url, "--token-file", viewer, "--ca", cert)

	h.refused(exitConflict, "add --replace to replace it", "context", "add", "lab", "--url", url, "--token-file", viewer)
	h.refused(exitMisuse, "is not the address of a hub", "context", "add", "lab", "--replace", "--url", "x", "--token-file", viewer)
	require.Contains(t, h.do("context", "list"), operator, "what cannot be used replaces nothing")
	h.do("context", "use", "lab")
	h.do("context", "add", "lab", "--replace", "--url", url, "--token-file", viewer, "--ca", cert)
	require.NotContains(t, h.do("context", "list"), operator)
	h.do("context", "add", "lab", "--replace", "--url", url, "--token-file", operator, "--ca", cert)
	require.Contains(t, h.do("context", "list"), "*lab ", "it is in use as before")
	h.do("context", "use", "--none")
	id := strings.TrimSpace(h.do("--context", "lab", "spawn", "-o", "name", "--spoke", "attic", "--wait", "--", "echo", "from afar"))
	require.Len(t, id, 36)
	require.Equal(t, "from afar\n", h.do("--context", "lab", "logs", "-f", id))
	require.Contains(t, h.do("--context", "lab", "status", id), "token:ops")
	refused := h.run("", "--context", "lab", "spawn", "-o", "name", "--spoke", "attic", "--wait", "--env", "LD_PRELOAD=x", "--", "true").out[:36]
	require.Contains(t, h.do("--context", "lab", "status", refused), "was refused by attic: variable \"LD_PRELOAD\"")
	require.Regexp(t, `(?m)^receipt +\d.* attic refused the order: variable "LD_PRELOAD".* \(POLICY\)$`, h.do("--context", "lab", "status", refused))
	require.Contains(t, h.do("--context", "lab", "why", "attic"), "has refused lately: variable \"LD_PRELOAD\"")
	h.do("context", "add", "peers", "--url", url, "--ca", cert, "--token-file", h.has(m, "peers", api.FederationAdmin))
	h.do("context", "add", "main", "--url", url, "--ca", cert, "--token-file", h.has(m, "main", api.Operator, "--workspace", "main"))
	for _, line := range []string{"why attic", "why attic --spoke attic", "why --spoke attic -o json"} {
		require.Contains(t, h.do(append([]string{"--context", "peers"}, strings.Fields(line)...)...), "attic", "agents are not for its role")
	}
	h.refused(exitNotFound, `no spoke "nowhere"`, "--context", "peers", "why", "nowhere")
	h.refused(exitNotFound, `no task "A9"`, "--context", "main", "why", "A9")
	h.refused(exitUntrusted, "is not for the role operator", "--context", "lab", "invite", "--name", "cellar")
	h.do("context", "use", "board")
	require.Contains(t, h.do("agents"), "attic")
	require.NotContains(t, h.do("status", id), "from afar", "a viewer sees no arguments")
	require.NotContains(t, h.do("agents", "-o", "json"), "from afar")
	require.Regexp(t, `(?m)^state +was refused by attic \(POLICY\)$`, h.do("status", refused))
	require.Regexp(t, `(?m)^receipt +\d.* attic refused the order$`, h.do("status", refused), "a viewer sees no message")
	require.Equal(t, "it was refused by attic (POLICY)\n", h.do("why", refused))
	require.Contains(t, h.do("why", "attic"), "its policy has refused lately (POLICY, ")
	require.NotContains(t, h.do("status", refused, "-o", "json"), "null")
	h.refused(exitUntrusted, "is not for the role viewer", "kill", id, "--reason", "test")
	h.do("context", "add", "work", "--url", url, "--ca", cert, "--token-file", h.has(m, "w1", api.Worker))
	h.do("--context", "lab", "backlog", "create", "--id", "A1", "--title", "schema")
	require.Contains(t, h.do("--context", "main", "why", "A1"), "A1 is ready and nobody asks for it", "agents and spokes are not for its workspace")
	var claim struct {
		Fence string `json:"fence"`
	}
	require.NoError(t, json.Unmarshal([]byte(h.do("--context", "work", "backlog", "claim", "--owner", "w1", "--ttl", "600", "--wait", "5s", "--json")), &claim))
	h.refused(exitMisuse, "speaks of a task that it has claimed", "--context", "work", "backlog", "complete", "--id", "A1")
	h.do("--context", "work", "backlog", "complete", "--fence", claim.Fence)
	require.Contains(t, h.do("backlog", "list"), "A1")
	require.Contains(t, h.do("context", "list"), "*board")
	require.Contains(t, h.do("context", "show"), "board")
	require.Contains(t, h.do("health"), "hub")

	for _, args := range [][]string{{"doctor"}, {"hub", "run", "--slots", "0"}, {"spoke", "run", "--slots", "0"}} {
		h.refused(exitMisuse, "this needs the files of an instance, and the context board leads to "+url, args...)
	}
	h.refused(exitMisuse, "are two instances", "--context", "lab", "--data-dir", m.Hub.Dir, "agents")
	h.refused(exitNotFound, `there is no context "nowhere"`, "--context", "nowhere", "agents")
	require.Contains(t, h.do("--data-dir", m.Hub.Dir, "agents"), "attic", "a directory that is named goes before the context in use")
	h.do("context", "use", "--none")
	require.Contains(t, h.do("context", "show"), "DATA DIR")

	refuses := func(code int, words string, args ...string) {
		t.Helper()
		h.do(append([]string{"context", "add", "try", "--token-file", operator}, args...)...)
		h.refused(code, words, "--context", "try", "agents")
		h.do("context", "remove", "try")
	}
	refuses(exitUntrusted, "of an authority that is not known here", "--url", url)
	refuses(exitUntrusted, "shows a certificate for another host", "--url", "https://127.0.0.1:"+at[2], "--ca", cert)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	refuses(exitUnreachable, "nothing listens there", "--url", "https://"+closed.Addr().String())
	refuses(exitUnreachable, "there is no host nowhere.invalid", "--url", "https://nowhere.invalid")
	hand{t: t, dir: m.Hub.Dir}.do("token", "revoke", "ops")
	h.refused(exitUntrusted, "the token ops was revoked", "--context", "lab", "agents")
	require.NoError(t, os.Chmod(viewer, 0o644))
	h.refused(exitMisuse, "others can use it", "--context", "board", "agents")
	book := filepath.Join(h.config, "spawnmesh", "contexts.yaml")
	info, err := os.Stat(book)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode())
	require.NoError(t, os.Chmod(book, 0o666))
	h.refused(exitMisuse, "can be written by others", "--context", "board", "agents")
	require.NoError(t, os.Chmod(book, 0o600))
	require.NoError(t, os.WriteFile(book, []byte("contexts: {lab: {uri: x}}\n"), 0o600))
	h.refused(exitMisuse, "reading the contexts in "+book, "--context", "lab", "agents")
}

// Any request can be sent, over the socket and with a token; its body is printed as it comes, and its exit code is that of its
// code.
func TestAnyRequestByHand(t *testing.T) {
	t.Parallel()
	m := startHub(t, "--api", "127.0.0.1:0")
	at := hasSaid(t, m.Hub, apiAt)
	h, o := away{t, t.TempDir()}, hand{t: t, dir: m.Hub.Dir}
	h.do("context", "add", "lab", "--url", "http://127.0.0.1:"+at[2], "--token-file", h.has(m, "ops", api.Operator))
	h.do("context", "use", "lab")
	for _, path := range []string{"/instance", "/api/v1/instance"} {
		var v api.Instance
		require.NoError(t, json.Unmarshal([]byte(h.do("api", "get", path)), &v), path)
		require.EqualValues(t, "hub", v.Role)
		require.Equal(t, "http://127.0.0.1:"+at[2], v.API)
	}
	require.Regexp(t, `(?m)^api +for other programs at http://127.0.0.1:`+at[2]+`$`, o.run("", "doctor").out)
	require.Equal(t, "{}\n", h.do("api", "GET", "/healthz"))
	require.Contains(t, h.do("api", "GET", "/metrics"), "spawnmesh_")

	for _, run := range []func(stdin string, args ...string) said{h.run, o.run} {
		for _, tt := range []struct {
			code        int
			says, stdin string
			args        []string
		}{
			{exitNotFound, `"code":"NOT_FOUND"`, "", []string{"GET", "/tasks/none"}},
			{exitMisuse, `"code":"VALIDATION"`, `{"no":1}`, []string{"POST", "/tasks", "-f", "-"}},
			{exitMisuse, `"code":"METHOD_NOT_ALLOWED"`, "", []string{"DELETE", "/tasks"}},
		} {
			s := run(tt.stdin, append([]string{"api"}, tt.args...)...)
			require.Equal(t, tt.code, s.code, "%v: %s%s", tt.args, s.out, s.err)
			require.Contains(t, s.out, tt.says)
		}
	}
	require.Equal(t, exitUntrusted, h.run("", "api", "GET", "/tokens").code)
	require.Contains(t, o.do("api", "GET", "/tokens"), `"name":"ops"`)
	file := filepath.Join(t.TempDir(), "body.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"reason":"test"}`), 0o600))
	require.Contains(t, o.do("api", "POST", "/tokens/ops/revoke", "-f", file), `"state":"revoked"`)
	h.refused(exitMisuse, "does not begin with /", "api", "GET", "tasks")
	h.refused(exitMisuse, "reading --file: open ", "api", "POST", "/tasks", "-f", file+"s")
}

// Tokens are made, shown once, listed and ended.
func TestTokensByHand(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	h := hand{t: t, dir: m.Hub.Dir}
	require.Contains(t, h.run("", "token", "list").err, "no tokens; make one: spawnmesh --data-dir "+h.dir+" token create")
	h.refused(exitMisuse, "a token needs a name, a role and a workspace", "token", "create", "--name", "ci")
	h.refused(exitMisuse, `there is no role "admin"`, "token", "create", "--name", "ci", "--role", "admin", "--workspace", "main")
	h.refused(exitMisuse, "is not 1 to 63 lower-case letters", "token", "create", "--name", "C I", "--role", "viewer", "--workspace", "main")
	h.refused(exitMisuse, "a token can be used for 1s to 366d", "token", "create", "--name", "ci", "--role", "viewer", "--workspace", "main", "--expires", "400d")

	s := h.run("", "token", "create", "--name", "ci", "--role", "viewer", "--workspace", "main")

	require.Zero(t, s.code, s.err)
	require.Regexp(t, `^smt_[a-z2-7]{12}_\w{34}\n$`, s.out)
	require.Contains(t, s.err, "ci is viewer in the workspace main until")
	h.refused(exitConflict, "a token named ci is there already", "token", "create", "--name", "ci", "--role", "owner", "--workspace", "*")
	list := h.do("token", "list", "-o", "wide") + h.do("token", "list", "-o", "json") + h.do("audit", "list", "-o", "json")
	require.Regexp(t, `(?m)^ci +valid +viewer +main +\S+ \S+ +- +`+s.out[4:16], list)
	require.NotContains(t, list, s.out[17:43])
	require.Equal(t, "the token ci is revoked\n", h.do("token", "revoke", "ci", "--reason", "test"))
	require.Equal(t, s.out[4:16]+"\n", h.do("token", "revoke", s.out[4:16], "-o", "name"))
	h.refused(exitNotFound, "there is no token with the id or the name", "token", "revoke", "nothing")
	require.Contains(t, h.do("audit", "list"), "token.revoked")
	require.NotContains(t, m.Hub.LastWords(), s.out[17:43])
}

// What is wrong with how the API is to be served is said before anything is started.
func TestWhereTheAPIIsServed(t *testing.T) {
	t.Parallel()
	h := fresh(t)
	cert, key := certify(t, time.Now().Add(time.Hour))
	h.refused(exitMisuse, "tokens would travel in the clear", "hub", "run", "--link", "127.0.0.1:0", "--api", "0.0.0.0:0")
	h.refused(exitMisuse, "a certificate needs its key", "hub", "run", "--link", "127.0.0.1:0", "--api", "0.0.0.0:0", "--api-cert", cert)
	h.refused(exitMisuse, "nothing says where", "hub", "run", "--link", "127.0.0.1:0", "--api-cert", cert, "--api-key", key)
	h.refused(exitMisuse, "cannot be used", "hub", "run", "--link", "127.0.0.1:0", "--api", "127.0.0.1:0", "--api-cert", key, "--api-key", cert)
	h.env = []string{"SPAWNMESH_API=0.0.0.0:0"}
	h.refused(exitMisuse, "tokens would travel in the clear", "hub", "run", "--link", "127.0.0.1:0")
	require.NoDirExists(t, filepath.Join(h.dir, "pg"))
}
