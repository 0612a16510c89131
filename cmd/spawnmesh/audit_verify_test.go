package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/signing"
)

// tampering does what somebody can who owns the database.
func tampering(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(url))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), `SET session_replication_role = replica; `+sql)
	require.NoError(t, err)
}

// An audit is verified where it is, and from a file where there is no instance; the first row that does not fit is named.
func TestAuditVerify(t *testing.T) {
	t.Parallel()
	url := aServer(t)
	b := alone(t)
	b.env = []string{"DATABASE_URL=" + url}
	for _, id := range []string{"A1", "A2", "A3"} {
		b.do("backlog", "create", "--id", id, "--title", id)
		b.do("backlog", "claim", "--id", id)
	}
	h := b.hand
	verified := h.do("audit", "verify")
	require.Regexp(t, `^the audit of mi1\w+ is whole: \d+ rows of \d+ leaves\n`, verified)
	require.Regexp(t, `\nthat was the newest checkpoint here; whether rows were cut off with it shows only one that a peer keeps: there spawnmesh audit checkpoints --peer NAME -o json, here .* audit verify --checkpoint FILE\n$`, verified)
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	full := h.command(t.Context(), "audit", "export", file)
	full.Path, full.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -f 1; exec "$0" "$@"`, full.Path}, full.Args[1:]...)
	said, err := full.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "writing the audit to "+file+", which was not made: file too large")
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Empty(t, entries)
	require.Contains(t, h.do("audit", "export", file), file+" with ")
	h.refused(exitMisuse, "file exists", "audit", "export", file)
	require.Contains(t, h.do("audit", "verify", file), "here spawnmesh --data-dir "+h.dir+" audit verify "+file+" --checkpoint FILE\n")
	h.refused(exitNotFound, `no checkpoint of the audit of a peer "nope" is kept here`, "audit", "checkpoints", "--peer", "nope")
	h.refused(exitNotFound, `no task "A9"`, "why", "A9")
	elsewhere := fresh(t)
	var sum audittree.Summary
	elsewhere.read(&sum, 0, "audit", "verify", file)
	require.Equal(t, sum.Size, sum.Rows)
	require.NoDirExists(t, filepath.Join(elsewhere.dir, "keys"), "no instance was made")

	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(raw), "\n")
	for name, c := range map[string]struct {
		text, words string
		code        int
	}{
		"a row edited":  {strings.Replace(string(raw), `"object":"`, `"object":"x`, 1), "is not what it was when it became leaf", exitUntrusted},
		"a line gone":   {strings.Join(append(lines[:2:2], lines[3:]...), ""), "leaf 1 is gone", exitUntrusted},
		"the end gone":  {strings.Join(lines[:len(lines)-2], ""), "it was cut off behind line", exitUntrusted},
		"cut in a row":  {string(raw)[:len(raw)/2], "it was cut off in line", exitUntrusted},
		"cut at first":  {lines[0][:20], "it was cut off in line 1", exitUntrusted},
		"cut at last":   {string(raw)[:len(raw)-3], "it was cut off in line", exitUntrusted},
		"more behind":   {string(raw) + `{"leaf`, "is no export of an audit", exitMisuse},
		"cut and ended": {strings.Join(lines[:3], "") + `{"end":{"size":2}}`, "rows are gone: there are 2", exitUntrusted},
		"another size":  {strings.Replace(string(raw), `"note":"spawnmesh/`, `"note":"spawnmosh/`, 1), "it is not a checkpoint that this instance has signed", exitUntrusted},
		"no export":     {"{}", "this is no export of an audit", exitMisuse},
	} {
		bad := filepath.Join(t.TempDir(), "bad.jsonl")
		require.NoError(t, os.WriteFile(bad, []byte(c.text), 0o600))
		elsewhere.t = t
		elsewhere.refused(c.code, c.words, "audit", "verify", bad)
		require.NotEmpty(t, name)
	}
	note := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, os.WriteFile(note, []byte(noteOf(t, lines[0])), 0o600))
	held := h.do("audit", "verify", "--checkpoint", note)
	require.Contains(t, held, "is whole")
	require.Contains(t, held, "it goes on from 1 checkpoint of --checkpoint, too\n")

	another, err := signing.NewSigner([]byte(strings.Repeat("x", 32)))
	require.NoError(t, err)
	foreign, err := audittree.Checkpoint{Instance: signing.InstanceIDOf(another.Public()), At: time.Now()}.Sign(another)
	require.NoError(t, err)
	for name, text := range map[string]string{"empty": "", "garbled": strings.Replace(noteOf(t, lines[0]), "era ", "eros ", 1), "no note": "a checkpoint", "of another": foreign} {
		wrong := filepath.Join(t.TempDir(), "kept")
		require.NoError(t, os.WriteFile(wrong, []byte(text), 0o600), name)
		h.refused(exitMisuse, wrong+" is no checkpoint of this instance", "audit", "verify", "--checkpoint", wrong)
		elsewhere.refused(exitMisuse, wrong+" is no checkpoint of this instance", "audit", "verify", file, "--checkpoint", wrong)
	}
	require.NoError(t, json.Unmarshal([]byte(h.do("audit", "verify", "-o", "ndjson")), &sum))
	require.Equal(t, 1, strings.Count(h.do("audit", "verify", "-o", "ndjson"), "\n"))
	require.Equal(t, sum.Instance+"\n", h.do("audit", "verify", "-o", "name"))

	require.Regexp(t, `(?m)^audit +the newest \d+ rows of \d+ that its checkpoint of \S+ \S+ covers are as they were$`, h.run("", "doctor").out)
	tampering(t, url, `INSERT INTO audit (seq, actor, action) OVERRIDING SYSTEM VALUE VALUES (-1, 'mallory', 'nothing')`)
	h.refused(exitUntrusted, "row -1 was put in", "audit", "verify")
	tampering(t, url, `DELETE FROM audit WHERE seq = -1`)
	tampering(t, url, `UPDATE audit SET why = 'nothing' WHERE seq = 2`)
	require.Regexp(t, `(?m)^audit +WRONG: .*the audit was changed: row 2 \(.*\) is not what it was when it became leaf 1`, h.run("", "doctor").out)
	got := h.run("", "audit", "verify", "-o", "json")
	require.Equal(t, exitUntrusted, got.code)
	require.Contains(t, got.err, string(commands.AuditBroken))
	require.Contains(t, got.err, "row 2 (")
	tampering(t, url, `TRUNCATE audit_leaves, audit_hashes, audit_gaps, audit_checkpoints; UPDATE audit_tree SET size = 0, seq = 0`)
	require.Contains(t, h.do("audit", "verify"), "is whole", "it fits itself")
	h.refused(exitUntrusted, "are not those of the checkpoint", "audit", "verify", "--checkpoint", note)
	h.refused(exitUntrusted, "are not those of the checkpoint", "audit", "verify", file, "--checkpoint", exportedNote(t, h))
}

// exportedNote is a file with the newest checkpoint.
func exportedNote(t *testing.T, h hand) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kept")
	line, _, _ := strings.Cut(h.do("audit", "export", "-"), "\n")
	require.NoError(t, os.WriteFile(file, []byte(noteOf(t, line)), 0o600))
	return file
}

// noteOf is the checkpoint in the first line of an export.
func noteOf(t *testing.T, line string) string {
	t.Helper()
	var l auditLine
	require.NoError(t, json.Unmarshal([]byte(line), &l))
	require.NotNil(t, l.Checkpoint)
	return l.Checkpoint.Note
}
