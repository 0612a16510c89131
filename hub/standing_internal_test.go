package hub

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// heardNow is a spoke of which all that it says is of now.
func heardNow() SpokeView {
	return SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: "attic", State: store.Active}, Linked: true, Says: commands.ConnectionView{State: "active"}}, Liveness: Alive}
}

// What a spoke says of its work is of now only where every part of the connection works.
func TestWhatASpokeSaysIsOfNow(t *testing.T) {
	t.Parallel()
	late := heardNow()
	late.Liveness = Late
	require.True(t, heardNow().current())
	require.True(t, late.current())
	for name, change := range map[string]func(v *SpokeView){
		"suspended":       func(v *SpokeView) { v.State = store.Suspended },
		"not linked":      func(v *SpokeView) { v.Linked = false },
		"silent":          func(v *SpokeView) { v.Liveness = Stale },
		"suspended there": func(v *SpokeView) { v.Says.State = "suspended" },
		"a full inbox":    func(v *SpokeView) { v.Full = true },
		"histories":       func(v *SpokeView) { v.Differs = "it was restored" },
	} {
		v := heardNow()
		change(&v)
		require.False(t, v.current(), name)
	}
}

// A verdict on what is not of now says why, and when the spoke was heard last.
func TestWhyASpokeIsUnheard(t *testing.T) {
	t.Parallel()
	seen := time.Now().Add(-4 * time.Minute)
	for name, tt := range map[string]struct {
		change func(v *SpokeView)
		says   string
	}{
		"nothing":     {func(*SpokeView) {}, ""},
		"late":        {func(v *SpokeView) { v.Liveness = Late }, ""},
		"suspended":   {func(v *SpokeView) { v.State = store.Suspended }, "the connection is suspended; attic was heard last 4m ago"},
		"no link":     {func(v *SpokeView) { v.Linked = false }, "the link is down; attic was heard last 4m ago"},
		"silence":     {func(v *SpokeView) { v.Liveness = Dead }, "the link is up and nothing is heard over it; attic was heard last 4m ago"},
		"never heard": {func(v *SpokeView) { v.Linked, v.LastSeen = false, nil }, "the link is down; attic was never heard"},
	} {
		v := heardNow()
		v.LastSeen = &seen
		tt.change(&v)
		require.Equal(t, tt.says, (&observed{spoke: v}).unheard(), name)
	}
}

// A whole id is taken as it is, in either case, and nothing is asked for it.
func TestAWholeIDIsNotLookedFor(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	for _, text := range []string{id, strings.ToUpper(id)} {
		got, err := (&Hub{}).named(t.Context(), text)
		require.NoError(t, err)
		require.Equal(t, id, got)
	}
	require.Panics(t, func() { _, _ = (&Hub{}).named(t.Context(), strings.ReplaceAll(id, "-", "")) }, "another spelling is looked for, here in no database")
}

// An agent that shows no sign is idle for longer and longer between two heartbeats, too.
func TestIdleTimeGoesOnBetweenHeartbeats(t *testing.T) {
	t.Parallel()
	idle := commands.AgentBeat{Task: "a", Attempt: 1, IdleMS: 3_600_000}
	o := observed{status: federation.Status{Beat: &store.Beat{At: time.Now().Add(-time.Hour), Body: commands.Heartbeat{Agents: []commands.AgentBeat{idle}}}}}

	require.GreaterOrEqual(t, o.idle(o.agent("a", 1)), 2*time.Hour)
}
