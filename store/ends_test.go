package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A spoke that was restored from a backup tells again how attempts ended: each is listed once, as it was told first.
func TestAnEndOfAnAttemptThatIsToldAgainIsListedOnce(t *testing.T) {
	t.Parallel()
	for name, tells := range map[string][][]int{
		"in the same batch": {{1, 2, 1}},
		"later":             {{1}, {1, 2}, {2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			task := p.Order(t, nil)
			spawn := p.Spoke.Read(t, p.Hub.Due(t)...)[0]
			code := 0
			for _, attempts := range tells {
				require.NoError(t, p.Spoke.DB.Tx(t.Context(), "telling", func(_ context.Context, tx *store.Tx) error {
					for _, n := range attempts {
						code++
						spawn.Answer(tx, &commands.Ended{Task: task, Attempt: n, Outcome: commands.AttemptFailed, State: commands.Queued, Exit: commands.Exit{Code: code}})
					}
					return nil
				}))
				_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, p.Hub.Read(t, p.Spoke.Due(t)...), store.MoveMirrors(storetest.Nowhere))
				require.NoError(t, err)
			}

			var listed []int
			for _, e := range p.Mirror(t, task).Attempts {
				listed = append(listed, e.Attempt)
			}
			require.Equal(t, []int{1, 2}, listed)
			require.Equal(t, 1, p.Mirror(t, task).Attempts[0].Exit.Code)
		})
	}
}
