package backlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Pages of a list have each row once that was there at the first one, and none that came since.
func TestPagesOfAListThatGrows(t *testing.T) {
	t.Parallel()
	b := board(t)
	made := 0
	add := func() { made++; create(t, b, backlog.TaskSpec{Key: fmt.Sprint(made), Title: "x"}) }
	for range 7 {
		add()
	}
	whole, err := b.Audit(t.Context(), "", 0, 100)
	require.NoError(t, err)
	for before, left := int64(0), whole; ; {
		rows, err := b.Audit(t.Context(), "", before, 2)
		require.NoError(t, err)
		if len(rows) == 0 {
			require.Empty(t, left, "pages end before the list does")
			break
		}
		require.Equal(t, left[len(left)-len(rows):], rows)
		before, left = rows[0].Seq, left[:len(left)-len(rows)]
		add()
	}
	var want, got []string
	for n := made; n > 0; n-- {
		want = append(want, fmt.Sprint(n))
	}
	for before := ""; ; {
		list, err := b.List(t.Context(), backlog.Filter{Before: before, Limit: 3})
		require.NoError(t, err)
		if len(list) == 0 {
			break
		}
		for _, v := range list {
			got = append(got, v.Key)
		}
		before = list[len(list)-1].ID
		add()
	}
	require.Equal(t, want, got)
}
