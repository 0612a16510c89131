package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
)

// What was delivered for review stays to be fetched where its task ends without a bundle, whether the end comes with it or later. An end that
// brings a bundle, and a later delivery that brings none, say what there is.
func TestWhatWasDeliveredOutlivesTheEnd(t *testing.T) {
	t.Parallel()
	bundle := func(n int64) *commands.Bundle {
		return &commands.Bundle{Blob: blobOf(n), Base: strings.Repeat("1", 40), Tip: strings.Repeat("2", 40), Commits: 1}
	}
	delivers := func(attempt int, b *commands.Bundle) *commands.Result {
		return &commands.Result{State: commands.InReview, Attempt: attempt, Outcome: commands.Succeeded, Bundle: b}
	}
	fails := func(b *commands.Bundle) *commands.Result {
		return &commands.Result{State: commands.Failed, Attempt: 3, Outcome: commands.AttemptFailed, Exit: commands.Exit{Code: 3}, Bundle: b}
	}
	for name, c := range map[string]struct {
		told [][]*commands.Result // by batch
		left *commands.Bundle
	}{
		"later":             {[][]*commands.Result{{delivers(1, bundle(100))}, {fails(nil)}}, bundle(100)},
		"at once":           {[][]*commands.Result{{delivers(1, bundle(100)), fails(nil)}}, bundle(100)},
		"the last delivery": {[][]*commands.Result{{delivers(1, bundle(100)), delivers(2, bundle(101))}, {fails(nil)}}, bundle(101)},
		"undone":            {[][]*commands.Result{{delivers(1, bundle(100))}, {delivers(2, nil)}, {fails(nil)}}, nil},
		"its own":           {[][]*commands.Result{{delivers(1, bundle(100))}, {fails(bundle(102))}}, bundle(102)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			task := p.Order(t, nil)
			for _, batch := range c.told {
				var bodies []commands.Body
				for _, r := range batch {
					r.Task = task
					bodies = append(bodies, r)
				}
				takenIn(t, p, reports(t, p, task, bodies...)...)
			}

			m := p.Mirror(t, task)

			r, ok := commands.ReadResult(m.Result)
			require.True(t, ok)
			require.Equal(t, []any{commands.Failed, 3}, []any{r.State, r.Attempt})
			require.Equal(t, c.left, r.Bundle)
		})
	}
}
