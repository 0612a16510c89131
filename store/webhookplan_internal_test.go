package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Webhooks take turns: those that have not had theirs come before those that have, and of each the one that is least far.
func TestWhoseTurnItIsOfWebhooks(t *testing.T) {
	t.Parallel()
	p := Planner{After: 10}
	for name, tt := range map[string]struct {
		v, w   int64
		before bool
	}{
		"one that has had its turn, after one that has not":   {11, 5, true},
		"one that has not, before one that has":               {5, 11, false},
		"both have had it":                                    {3, 5, true},
		"neither has":                                         {15, 12, false},
		"one at the end of the last turn has had it":          {10, 11, false},
		"equally far are served together, none before":        {12, 12, false},
		"equally far behind are served together, none before": {4, 4, false},
	} {
		require.Equal(t, tt.before, p.before(Webhook{Cursor: tt.v}, Webhook{Cursor: tt.w}), name)
	}
}
