package messages_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

// Reading and writing cost the same however many messages are kept. A million are, in the long run.
func TestManyMessagesCostNoMore(t *testing.T) {
	t.Parallel()
	n := scale.Larger(t, "SPAWNMESH_MESSAGES_KEPT", 20_000, 1_000_000)
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	l.MostOfSender, l.MostOfWorkspace = 1<<40, 1<<40
	require.NoError(t, s.Exec(`INSERT INTO messages (seq, workspace, id, at, sender, recipient, type, correlation, payload, said_by)
		SELECT i, 'main', gen_random_uuid(), now(), 'sender-' || i % 100, CASE WHEN i % 3 = 0 THEN '' ELSE 'reader-' || i % 1000 END, 'x-kind-' || i % 20, 'talk-' || i / 10, '{"word":"common","n":"w' || i || '"}', 'test' FROM generate_series(1, $1::int) AS i`, n))
	require.NoError(t, s.Exec(`UPDATE message_numbers SET last = $1`, n))
	require.NoError(t, s.Exec(`INSERT INTO message_workspaces (workspace, kept) VALUES ('main', $1)`, n))
	for what, act := range map[string]func() (int, error){
		"poll": func() (int, error) {
			p, err := l.Poll(t.Context(), "main", "reader-7", 100, time.Time{})
			return len(p.Messages), err
		},
		"poll of who has nothing of its own": func() (int, error) {
			p, err := l.Poll(t.Context(), "main", "nobody", 100, time.Time{})
			return len(p.Messages), err
		},
		"send": func() (int, error) {
			_, _, err := l.Publish(t.Context(), saying("alice", "bob", `"late"`))
			return 100, err
		},
		"list":           listed(t, l, messages.Terms{Limit: 100}),
		"list by sender": listed(t, l, messages.Terms{From: "sender-7", Limit: 100}),
		"list by type":   listed(t, l, messages.Terms{Type: "x-kind-7", Limit: 100}),
		"common words":   listed(t, l, messages.Terms{Words: "common", Limit: 100}),
		"one word": func() (int, error) {
			n, err := listed(t, l, messages.Terms{Words: fmt.Sprint("w", n/2), Limit: 100})()
			return n + 99, err
		},
	} {
		began := time.Now()
		got, err := act()
		took := time.Since(began)
		require.NoError(t, err, what)
		require.Equal(t, 100, got, what)
		require.Less(t, took, 5*time.Second, what)
		t.Logf("%s of %d: %s", what, n, took.Round(100*time.Microsecond))
	}
}

func listed(t *testing.T, l *messages.Log, terms messages.Terms) func() (int, error) {
	return func() (int, error) {
		list, err := l.List(t.Context(), "main", terms)
		return len(list), err
	}
}
