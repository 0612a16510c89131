package federation

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A message that this host cannot judge now is left, and comes again, until it is over: then it is answered.
func TestWhatIsOverIsNotLeft(t *testing.T) {
	t.Parallel()
	keys, err := signing.CreateKeys(filepath.Join(t.TempDir(), "keys"))
	require.NoError(t, err)
	hub := &forge.Voice{Keys: keys, Peer: keys.InstanceID(), Conn: forge.NewID(), Epoch: 1}
	key := signing.PeerKey{ID: keys.Signing.KeyID(), Owner: keys.InstanceID(), Public: keys.Signing.Public()}
	p := &Peer{Verifying: store.Verifying{Verifier: signing.Verifier{Self: hub.Peer, Conn: hub.Conn, Epoch: 1, Keys: map[signing.KeyID]signing.PeerKey{key.ID: key}, Heads: &signing.Heads{}}}}
	refused := commands.Refuse(commands.BadPath, "no such directory")
	h := &Handler{Judge: func(_ context.Context, m *store.Incoming) *commands.Refused {
		m.Later = errors.New("too many open files")
		return refused
	}}
	x := &Exchange{role: &role{handlers: map[commands.Kind]*Handler{commands.SpawnKind: h}}, log: slog.New(slog.DiscardHandler)}
	for left, exp := range map[bool]time.Duration{true: time.Hour, false: -time.Second} { // no longer ago than clocks may differ
		m := hub.Seal(&commands.Spawn{Task: forge.NewID(), Runtime: commands.RuntimeNoop}, nil, func(h *signing.Header) {
			h.Iat, h.Exp = time.Now().Add(-time.Minute).UnixMilli(), time.Now().Add(exp).UnixMilli()
		})

		o := x.open(t.Context(), p, m.Envelope)

		require.NoError(t, o.rejected)
		require.Equal(t, left, o.later)
		require.Equal(t, !left, o.stored)
		require.Equal(t, refused, o.in.Refusal)
	}
}
