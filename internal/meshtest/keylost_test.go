package meshtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spoke that is restored to before its hub had a new key learns that again, and nothing of the hub is refused there. The
// messages that told it may have been pruned since, or have expired.
func TestASpokeFromBeforeANewKeyOfItsHubLearnsIt(t *testing.T) {
	t.Parallel()
	revoke := store.KeyChange{Revoke: "current", Reason: "the disk was copied"}
	for name, c := range map[string]struct {
		changes []store.KeyChange
		pruned  bool
	}{
		"rotated":          {[]store.KeyChange{{}}, false},
		"rotated twice":    {[]store.KeyChange{{}, {}}, false},
		"revoked":          {[]store.KeyChange{{}, revoke}, false},
		"rotated long ago": {[]store.KeyChange{{}}, true},
		"revoked long ago": {[]store.KeyChange{revoke}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, d := Start(t, "attic"), disaster{sides: []string{"attic"}}
			attic := m.Spokes["attic"]
			backups := d.backUp(t, m)
			m.AwaitLink(t, "attic")
			var v store.KeysView
			for _, change := range c.changes {
				v = m.Hub.change(t, change)
				Await(t, "the new key", func() bool {
					m.Hub.Do(t, "GET", "/api/v1/keys", nil, &v)
					return len(v.Waiting) == 0
				})
			}
			if c.pruned {
				_, err := m.Hub.SQL.Exec(t.Context(), `DELETE FROM outbox WHERE kind = 'peer.keyset'`)
				require.NoError(t, err)
			}
			restored := time.Now()

			d.restore(t, m, backups)

			agreeAgain(t, m, "attic")
			require.Equal(t, commands.Completed, m.Wait(t, m.Noop(t, "attic")).State)
			require.Equal(t, 1, attic.count(t, `SELECT count(*) FROM keys WHERE use = 'identity' AND version = $1`, v.Version))
			require.Zero(t, attic.count(t, refusals+` AND code = 'KEY_UNKNOWN' AND at > $1`, restored))
		})
	}
}
