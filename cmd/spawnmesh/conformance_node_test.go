//go:build node

// These tests need node and npm: make test-js runs them, make test does not.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/conformance"
)

// installed is a directory with the client of the spoke in JavaScript, for all tests.
var installed = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(filepath.Dir(program), "node")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		raw, err := os.ReadFile(filepath.Join("../../docs/examples", name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
			return "", err
		}
	}
	install := exec.Command("npm", "ci", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w: %s", err, out)
	}
	return dir, nil
})

// exampleSpoke copies the spoke in JavaScript to a directory of its own beside the client,
// where node finds it, and returns the path of its main file.
func exampleSpoke(t *testing.T) (main string) {
	t.Helper()
	client, err := installed()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(client, "spoke-")
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(filepath.Join(dir, "spoke"), os.DirFS("../../docs/examples/spoke")))
	raw, err := os.ReadFile("../../docs/examples/spoke.mjs")
	require.NoError(t, err)
	main = filepath.Join(dir, "spoke.mjs")
	require.NoError(t, os.WriteFile(main, raw, 0o644))
	return main
}

// A spoke that was written from the page keeps every rule of it.
func TestTheJavaScriptSpokeKeepsTheProtocol(t *testing.T) {
	t.Parallel()
	main := exampleSpoke(t)

	list, code := conform(t, "--patience", "1m", "--", "node", main)

	// It leaves out what a spoke may.
	list = slices.DeleteFunc(list, func(v conformance.Verdict) bool {
		return v.Verdict == conformance.NotTried && slices.Contains([]string{"freeze", "freeze-early", "controls", "audit", "pause-running", "pause-first"}, v.Rule)
	})
	require.Len(t, list, len(conformance.Rules())-6)
	keepsEach(t, list, code)
}

// The runner finds what is wrong with a spoke: each break is caught by its rule.
func TestConformanceFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for rule, b := range map[string]struct{ file, old, new string }{
		"malformed-signatures": {"spoke/wire.mjs", `drop(!verify(pub, treeType, root, sig), "SIG_BAD");`, ``},
		"malformed-addresses":  {"spoke/wire.mjs", `drop(h.aud !== peer.self, "AUD_MISMATCH");`, ``},
		"malformed-times":      {"spoke/wire.mjs", `if (exp <= iat || exp - iat > limit * day)`, `if (false)`},
		"malformed-bodies":     {"spoke/bodies.mjs", `|| names.has(name)) bad`, `) bad`},
		"expired":              {"spoke/wire.mjs", `if (exp < now - 120e3)`, `if (false)`},
		"trees":                {"spoke/wire.mjs", `r = i % 2 ? sha256(Buffer.of(1), p, r) : sha256(Buffer.of(1), r, p);`, `r = sha256(Buffer.of(1), r, p);`},
		"suspends":             {"spoke/inbox.mjs", `if (this.bad.length >= 20)`, `if (false)`},
		"stored-first":         {"spoke.mjs", `this.inbox.take(Buffer.from(m.data));`, `setTimeout(() => this.inbox.take(Buffer.from(m.data)), 300);`},
		"kill-remembered":      {"spoke/journal.mjs", `append(this.file, changes);`, ``},
		"duplicate":            {"spoke/inbox.mjs", `this.spoke.repeat(m.header.id);`, ``},
		"id-twice":             {"spoke/inbox.mjs", `if (known) return known.seal === m.sealOf ? this.again(known, m) : this.blame("REPLAY_DIFF");`, ``},
		"number-twice":         {"spoke/inbox.mjs", `if (this.spoke.inSeqs.has(h.seq)) return this.spoke.compare();`, ``},
		"known-task":           {"spoke/agents.mjs", `exp: m.header.exp }, t = this.task(body.task);`, `exp: m.header.exp }, t = undefined;`},
		"task-conflict":        {"spoke/agents.mjs", `if (canonical(unsealed(t.body)) !== canonical(unsealed(body)))`, `if (false)`},
		"tombstone":            {"spoke/agents.mjs", `tx.put("tombstone:" + body.task, m.header.exp + 24 * 3600e3);`, ``},
		"kill-running":         {"spoke/agents.mjs", `process.kill(-pid, name)`, `process.kill(pid, name)`},
		"pause-running":        {"spoke/agents.mjs", `tx.refuse(m, "CONFLICT", "this spoke does not pause agents", body.task);`, `tx.answer(m, "agent.accepted", { task: body.task, state: "running" });`},
		"pause-first":          {"spoke/agents.mjs", `tx.refuse(m, "CONFLICT", "this spoke does not pause agents", body.task);`, `tx.answer(m, "agent.accepted", { task: body.task, state: "paused" });`},
		"killed-at-work":       {"spoke/agents.mjs", `{ outcome: "interrupted", exit: { code: -1, error: "the spoke ended while the agent ran" } }`, `{ outcome: "succeeded", exit: { code: 0 } }`},
		"agree-first":          {"spoke.mjs", `if (!this.agrees || nc.isClosed()) return;`, ``},
		"new-server":           {"spoke.mjs", `if (nc.info.server_id !== this.server) this.sent.clear();`, ``},
		"own-numbers":          {"spoke.mjs", `let last = this.db.get("last");`, `let last = this.db.get("last") + 1;`},
		"large-output":         {"spoke.mjs", `if (s.through > statSync(path).size) return;`, `if (s.through < (a.streams[s.stream]?.through ?? 0)) return;`},
		"digest":               {"spoke/histories.mjs", `n.writeBigUInt64BE(BigInt(m.seq));`, `n.writeBigUInt64LE(BigInt(m.seq));`},
		"recalled":             {"spoke/histories.mjs", `return { from, through, done: true, orders };`, `return { from, through, orders };`},
		"void":                 {"spoke/inbox.mjs", `if (this.spoke.inSeqs.has(h.seq))`, `if (this.spoke.inSeqs.has(h.seq) || this.db.get("void")?.some((r) => r.from <= h.seq && h.seq <= r.to))`},
		"refused":              {"spoke/bodies.mjs", `limited: flag, full: flag`, `limited: flag, full: count`},
		"key-revoked":          {"spoke/inbox.mjs", `if (set.revoked.includes(kid)) return "KEY_REVOKED";`, `return "";`},
		"keyset-old":           {"spoke/inbox.mjs", `version > set.version && signed`, `signed`},
		"beat":                 {"spoke.mjs", `if (m.header.kind === "peer.received" && b.beat) this.beatNow();`, ``},
		"new-incarnation":      {"spoke.mjs", `this.incarnation = randomUUID();`, `this.incarnation = "5b0c7a52-3c5e-4f0e-9d39-7a4f2f0f6f11";`},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			main := exampleSpoke(t)
			file := filepath.Join(filepath.Dir(main), b.file)
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(raw), b.old), "%s in %s", b.old, b.file)
			require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(raw), b.old, b.new, 1)), 0o644))

			list, code := conform(t, "--patience", "5s", "--rule", rule, "--", "node", main)

			require.Equal(t, exitUnexpected, code)
			for _, v := range list {
				if v.Rule == rule {
					require.Equal(t, conformance.Broken, v.Verdict, v.Why)
				} else {
					require.Equal(t, conformance.Kept, v.Verdict, "%s: %s", v.Rule, v.Why)
				}
			}
		})
	}
}
