package spoke_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke/door"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

// Agents of one hub on one host speak with each other, each as itself.
func TestAgentsSpeakWithEachOther(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	attic := m.Spokes["attic"]
	one, two := waiting(t, m), waiting(t, m)
	a, b := doorOf(attic, one, 1), doorOf(attic, two, 1)
	ask := func(c *door.Client, path string, in, out any) error {
		return c.Do(t.Context(), http.MethodPost, "/v1/messages"+path, in, out)
	}

	got := make(chan door.Polled, 1)
	go func() {
		var p door.Polled
		if ask(b, "/poll", door.Poll{WaitMS: 20_000}, &p) == nil {
			got <- p
		}
	}()
	var sent door.Message
	require.NoError(t, ask(a, "", door.Letter{To: messages.Agent(two), Type: "x-note", Payload: []byte(`{"text": "hi"}`)}, &sent))
	p := <-got
	require.Len(t, p.Items, 1)
	require.Equal(t, messages.Agent(one), p.Items[0].From)
	require.JSONEq(t, `{"text":"hi"}`, string(p.Items[0].Payload))

	token, err := os.ReadFile(a.TokenFile)
	require.NoError(t, err)
	status, answer := knock(t, a, strings.TrimSpace(string(token)), "POST", "/v1/messages", fmt.Sprintf(`{"type":"x-note","from":%q}`, messages.Agent(two)))
	require.Equal(t, http.StatusBadRequest, status, answer)
	require.Equal(t, commands.Conflict, commands.CodeOf(ask(b, "/ack", door.Ack{Seq: sent.Seq + 1}, nil)))
	var acked door.Acked
	require.NoError(t, ask(b, "/ack", door.Ack{Seq: sent.Seq}, &acked))
	require.Equal(t, door.Acked{Name: messages.Agent(two), Acked: sent.Seq}, acked)
	require.NoError(t, ask(b, "/poll", door.Poll{}, &p))
	require.Empty(t, p.Items)

	require.Equal(t, 1, attic.Count(t, `SELECT count(*) FROM messages m JOIN connections c ON c.id::text = m.workspace WHERE m.id = $1`, sent.ID), "it is of the connection alone")
	require.Equal(t, 1, attic.Count(t, `SELECT count(*) FROM messages`))

	attic.Exec(t, `UPDATE leases SET epoch = epoch + 1, reason = 'kill_requested' WHERE task = $1`, one)
	require.Equal(t, commands.StaleAttempt, commands.CodeOf(ask(a, "", door.Letter{Type: "x-late"}, nil)))
	require.Equal(t, commands.StaleAttempt, commands.CodeOf(ask(a, "/poll", door.Poll{}, nil)))
	require.Equal(t, 1, attic.Count(t, `SELECT count(*) FROM messages`))
}
