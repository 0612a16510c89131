package main

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// sendNotes has a hub store so many messages.
func sendNotes(t *testing.T, dir string, n int) {
	t.Helper()
	c := control.NewClient(dir)
	var some errgroup.Group
	some.SetLimit(32)
	for i := range n {
		some.Go(func() error {
			_, err := control.Answer(c.API().SendMessageWithResponse(t.Context(), "main", api.NewMessage{Type: "x-note", Payload: api.JSON(strconv.Itoa(i))}))
			return err
		})
	}
	require.NoError(t, some.Wait())
}

func TestMessagesByHand(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	file := put(t, "report", `{"words":"`+strings.Repeat("plenty ", 1000)+`"}`, 0o600)
	var own, all api.Message
	h.read(&own, 0, "message", "send", "--type", "task_done", "--from", "alice", "--to", "bob", "--correlation", "42", "--file", file)
	h.read(&all, 0, "message", "send", "--type", "x-note", "--from", "alice", "--payload", `{"text": "the build has timed out"}`, "--reply-to", own.ID)

	var page []api.Message
	h.read(&page, 0, "message", "poll", "--as", "bob", "--wait", "10s")
	require.Len(t, page, 2)
	require.Equal(t, own.ID, page[0].ID)
	require.NotEmpty(t, page[0].PayloadRef)
	require.Contains(t, string(page[0].Payload), "plenty plenty")
	require.Contains(t, h.do("message", "poll", "--as", "bob"), "timed out")
	h.refused(exitConflict, "was not given to bob", "message", "ack", "99", "--as", "bob")
	require.Equal(t, "bob has acknowledged all up to 0; message 1 has failed 1 times\n", h.do("message", "ack", "1", "--as", "bob", "--failed", "no room"))
	require.Equal(t, "bob has acknowledged all up to 2\n", h.do("message", "ack", "2", "--as", "bob"))
	require.Empty(t, h.do("message", "poll", "--as", "bob", "-o", "ndjson"))
	require.Equal(t, all.ID+"\n", h.do("message", "list", "--grep", "timed -plenty", "-o", "name"))
	require.Equal(t, own.ID+"\n", h.do("message", "thread", "42", "-o", "name"))
	require.Equal(t, own.ID+"\n", h.do("message", "list", "--to", "bob", "-o", "name"))
	require.Equal(t, all.ID+"\n"+own.ID+"\n", h.do("message", "list", "--from", "alice", "-o", "name"))
	h.refused(exitMisuse, "a list is by one of", "message", "list", "--from", "alice", "--to", "bob")
	require.Regexp(t, `(?m)^answers +`+own.ID+`$`, h.do("message", "show", all.ID))
	require.Regexp(t, `(?m)^bob +2 +2 +0 +0 +.+ +live$`, h.do("message", "reader", "list"))
	h.refused(exitNotFound, "no message", "message", "show", "0193a3c0-2222-7aaa-8bbb-77f4a4fefe00")
	h.refused(exitUntrusted, "nobody else speaks or reads as agent:1", "message", "send", "--type", "x-note", "--from", "agent:1")
	h.refused(exitMisuse, "there is no type", "message", "send", "--type", "note")

	again := h.run("", "message", "send", "--type", "x-note", "--from", "alice", "--payload", `{"text":"the build has timed out"}`, "--reply-to", own.ID, "--id", all.ID)
	require.Contains(t, again.out, "is number 2 (it was stored before)")
	h.refused(exitConflict, "with other content", "message", "send", "--type", "x-note", "--from", "alice", "--id", all.ID)

	h.do("message", "send", "--type", "x-report", "--to", "eve", "--file", file)
	large := put(t, "large", `"`+strings.Repeat("x", 250<<10)+`"`, 0o600)
	for range 18 {
		h.do("message", "send", "--type", "x-large", "--to", "carol", "--file", large)
	}
	require.NotContains(t, h.do("message", "poll", "--as", "carol", "-o", "ndjson"), "blob_large", "the page ends before")
	require.Equal(t, 18, strings.Count(h.do("message", "export", "-", "--resolve-blobs"), `"payload":"xxxx`))
	digest := filepath.Join(m.Hub.Dir, "blobs", own.PayloadRef[7:9], own.PayloadRef[7:])
	require.NoError(t, os.WriteFile(digest, []byte("damaged"), 0o600))
	require.Contains(t, h.do("message", "show", own.ID), "decode_failed")
	require.NoError(t, os.Remove(digest))
	require.Contains(t, h.do("message", "show", own.ID), "blob_missing")
	require.Contains(t, h.do("message", "poll", "--as", "eve"), "blob_missing", "it stops nobody")
}

// Who is not shown all of a long conversation is told so.
func TestALongConversationSaysThatThereIsMore(t *testing.T) {
	t.Parallel()
	url := aServer(t)
	m := hubOn(t, url)
	h := hand{t: t, dir: m.Hub.Dir}
	tampering(t, url, `INSERT INTO messages (seq, workspace, id, at, sender, type, correlation, payload, said_by)
		SELECT i, 'main', gen_random_uuid(), now(), 'alice', 'x-test', CASE WHEN i <= 10000 THEN 'long' ELSE 'longer' END, '1', 'test' FROM generate_series(1, 30000) AS i`)

	all, cut := h.run("", "message", "thread", "long"), h.run("", "message", "thread", "longer")

	require.Equal(t, 10_000, strings.Count(all.out, "x-test"))
	require.Equal(t, 10_000, strings.Count(cut.out, "x-test"))
	require.NotContains(t, all.err, "there are more")
	require.Contains(t, cut.err, "these are the oldest 10000, and there are more")
}

// An export that is killed at any moment goes on where its last whole line ends: the file has each message once.
func TestAnExportIsKilled(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	const n, kills = 1500, 20
	sendNotes(t, h.dir, n)
	file := filepath.Join(t.TempDir(), "messages.jsonl")
	killed := 0
	for i := range kills { // from before it writes to after its end
		c := h.command(t.Context(), "message", "export", file)
		require.NoError(t, c.Start())
		time.Sleep(time.Duration(rand.IntN(5*i+1)) * time.Millisecond)
		_ = c.Process.Kill()
		if c.Wait() != nil {
			killed++
		}
		sendNotes(t, h.dir, 20)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(`{"at":"2026-07-01T`) // as one that was killed while it wrote
	require.NoError(t, err)
	require.NoError(t, f.Close())

	h.do("message", "export", file)

	require.Positive(t, killed)
	var seqs []int64
	in, err := os.Open(file)
	require.NoError(t, err)
	defer in.Close()
	for s := bufio.NewScanner(in); s.Scan(); {
		var v api.Message
		require.NoError(t, json.Unmarshal(s.Bytes(), &v), s.Text())
		seqs = append(seqs, v.Seq)
	}
	require.Len(t, seqs, n+kills*20)
	for i, seq := range seqs {
		require.EqualValues(t, i+1, seq)
	}
	require.Contains(t, h.do("message", "export", file), " has 0 messages more")
}

// An export changes no file that is none of its own.
func TestAnExportEmptiesNoOtherFile(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	sendNotes(t, h.dir, 3)
	file := put(t, "export", "", 0o600)
	h.do("message", "export", file)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	line := `{"seq":1,"id":"0193a3c0-2222-7aaa-8bbb-77f4a4fefe00","log":"other/main"}` + "\n"
	for text, want := range map[string]struct {
		status int
		says   string
	}{
		"hello\n":                      {exitMisuse, "it is no export of messages"},
		`{"settings": 1}`:              {exitMisuse, "it is no export of messages"},
		string(whole) + "a\n" + "half": {exitMisuse, "it is no export of messages"},
		line:                           {exitConflict, "is not of this log"},
		line + `{"at":"20`:             {exitConflict, "is not of this log"},
	} {
		other := put(t, "other", text, 0o600)
		h.refused(want.status, want.says, "message", "export", other)
		is, err := os.ReadFile(other)
		require.NoError(t, err)
		require.Equal(t, text, string(is))
	}
	for _, part := range []string{`{"a`, `{"at":"2026`} {
		begun := put(t, "begun", part, 0o600)
		h.do("message", "export", begun)
		is, err := os.ReadFile(begun)
		require.NoError(t, err)
		require.Equal(t, string(whole), string(is))
	}
}

// A line whose message was removed since is known by the name of its log, and one that is there by its id.
func TestALineIsOfItsLog(t *testing.T) {
	t.Parallel()
	log := messageLog{"a/main", 7}
	there := []api.Message{{Seq: 9, ID: "nine"}}
	for l, want := range map[lastLine]bool{
		{Seq: 9, ID: "nine"}:                  true,
		{Seq: 9, ID: "other", Log: "a/main"}:  false,
		{Seq: 7, ID: "seven", Log: "a/main"}:  true,
		{Seq: 7, ID: "seven", Log: "b/main"}:  false,
		{Seq: 7, ID: "seven", Log: "a/other"}: false,
		{Seq: 8, ID: "eight", Log: "a/main"}:  false,
	} {
		require.Equal(t, want, l.isOf(log, there), "%+v", l)
	}
}

// What a reader fails five times at comes to his dead letters after the pauses between, and stays there until somebody says what becomes of it.
func TestADeadLetterByHand(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	h.do("message", "send", "--type", "x-note", "--payload", "1")
	for range 5 {
		require.NotEmpty(t, h.do("message", "poll", "--as", "eve", "--wait", "30s", "-o", "name"))
		h.do("message", "ack", "1", "--as", "eve", "--failed", "no room")
	}

	names, lines := h.do("message", "dead", "list", "-o", "name"), h.do("message", "dead", "list", "-o", "ndjson")

	require.Equal(t, 1, strings.Count(names, "\n"))
	require.Equal(t, 1, strings.Count(lines, "\n"))
	require.Contains(t, lines, `"no room"`)
	require.Empty(t, h.do("message", "poll", "--as", "eve", "-o", "name"))
	h.do("message", "dead", "retry", "1", "--reader", "eve")
	require.NotEmpty(t, h.do("message", "poll", "--as", "eve", "-o", "name"))
	h.do("message", "dead", "drop", "1", "--reader", "eve")
	require.Empty(t, h.do("message", "dead", "list", "-o", "name"))
}
