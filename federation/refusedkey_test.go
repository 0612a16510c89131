package federation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A peer is told that its key has ended. One that has gone from the table is unknown, which no
// heartbeat may say: a side that said it could make no heartbeat any more.
func TestAKeyThatIsGoneSilencesNobody(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change string
		code   signing.Code
		told   bool
	}{
		"its time has passed": {`UPDATE keys SET not_after = clock_timestamp() WHERE use = 'signing'`, signing.KeyWindow, true},
		"revoked":             {`UPDATE keys SET revoked_at = clock_timestamp() WHERE use = 'signing'`, signing.KeyRevoked, true},
		"gone":                {`DELETE FROM keys WHERE use = 'signing'`, signing.KeyUnknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := storetest.NewPair(t).Hub
			h := federation.NewHistoryForTest(hub.DB, hub.Conn, federation.Role{})
			require.NoError(t, hub.Exec(tt.change))
			refused, ended := store.SpeakerEnded(h.Hear(t.Context(), hub.Peer.Key, 1, commands.Numbering{Digest: &commands.History{}}))
			require.True(t, ended)
			require.Equal(t, tt.code, refused.Code)

			told, err := h.Refuse(t.Context(), hub.Peer.Key, refused)

			require.Equal(t, tt.code, commands.CodeOf(err))
			require.Equal(t, tt.told, told != nil)
			_, err = commands.BodyToSend(&commands.Heartbeat{IntervalMS: 1000, Connection: commands.ConnectionView{State: commands.ConnActive, Refuses: told}})
			require.NoError(t, err)
		})
	}
}
