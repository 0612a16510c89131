package hub_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A quick spoke has obeyed an order before that is answered. Who has given it is told all the same what word it has overruled.
func TestAnAnswerToAResumeHasThePauseThatItEnds(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	spawn := p.Spoke.Read(t, p.Hub.Due(t)...)[0]
	h := &hub.Hub{DB: p.Hub.DB, Log: slog.New(onLine(func() { obeyPause(t, p, spawn) }))}
	order := func(on bool, reason string) hub.AgentView {
		v, err := h.Pause(t.Context(), task, commands.Pause{Paused: on, Reason: reason}, "ann")
		require.NoError(t, err)
		return v
	}
	order(true, "lunch")

	v := order(false, "")

	var o store.OrderedPause
	require.NoError(t, json.Unmarshal(v.Pause, &o))
	require.NotNil(t, o.Before)
	require.Equal(t, []any{commands.Paused, store.PauseSent, false, true, "lunch"}, []any{v.State, o.State, o.Paused, o.Before.Paused, o.Before.Reason})
	require.NoError(t, json.Unmarshal(p.Mirror(t, task).Pause, &o))
	require.Equal(t, []any{commands.Running, store.PauseTaken}, []any{p.Mirror(t, task).State, o.State}, "it had been obeyed by then")
}

// obeyPause has the spoke of p take the pauses and resumes that it was sent, and its hub hear that.
func obeyPause(t *testing.T, p *storetest.Pair, spawn *store.Incoming) {
	t.Helper()
	list := p.Spoke.Read(t, p.Hub.Due(t)...)
	require.NotEmpty(t, list)
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "obeying", func(_ context.Context, tx *store.Tx) error {
		for _, m := range list {
			state := commands.Running
			if m.Body.(*commands.Pause).Paused {
				state = commands.Paused
			}
			m.Answer(tx, &commands.Accepted{Task: m.Task(), State: state})
			tx.Send(store.Draft{Conn: p.Spoke.Conn.ID, Body: &commands.TaskState{Task: m.Task(), State: state, Attempt: 1, At: time.Now().UnixMilli()},
				Re: &signing.Ref{ID: spawn.Header.ID, SHA256: spawn.Header.Body.SHA256}})
		}
		return nil
	}))
	told := p.Hub.Read(t, p.Spoke.Due(t)...)
	_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, told, store.MoveMirrors(storetest.Nowhere))
	require.NoError(t, err)
	for _, m := range told {
		require.Empty(t, m.Code, "%s %s", m.Header.Kind, m.Why)
	}
}

// onLine does something with each line of a log, before whoever writes it goes on.
type onLine func()

func (do onLine) Enabled(context.Context, slog.Level) bool { return true }

func (do onLine) Handle(context.Context, slog.Record) error {
	do()
	return nil
}

func (do onLine) WithAttrs([]slog.Attr) slog.Handler { return do }

func (do onLine) WithGroup(string) slog.Handler { return do }
