package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// An instance that is hub and spoke has one list of two: its pages leave nothing out, and repeat nothing.
func TestPagesOfTwoLists(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var want []string
		var both [2][]api.Task // the newest first
		for n := r.IntN(60); n > 0; n-- {
			v := api.Task{ID: fmt.Sprintf("01920000-0000-7000-8000-%012d", n), CreatedAt: time.Unix(int64(r.IntN(60)), 0)}
			want = append(want, v.ID)
			i := r.IntN(2)
			both[i] = append(both[i], v)
		}
		limit, sparse := 1+r.IntN(7), r.IntN(2) == 0

		var got []string
		for next, first := "", true; first || next != ""; first = false {
			var list []api.Task
			var through string
			for _, of := range both {
				rest := slices.DeleteFunc(slices.Clone(of), func(v api.Task) bool { return next != "" && v.ID >= next })
				page := rest[:min(limit, len(rest))]
				if sparse && len(page) > 1 { // as a list by labels, which goes on before it is full
					page = page[:1+r.IntN(len(page))]
				}
				list = append(list, page...)
				if len(page) < len(rest) {
					through = max(through, page[len(page)-1].ID)
				}
			}
			list, next = pageOf(list, limit, through)
			require.LessOrEqual(t, len(list), limit)
			require.True(t, slices.IsSortedFunc(list, func(x, y api.Task) int { return y.CreatedAt.Compare(x.CreatedAt) }), "seed %d", seed)
			ids := mapped(list, func(v api.Task) string { return v.ID })
			slices.Sort(ids)
			slices.Reverse(ids)
			got = append(got, ids...)
		}

		require.Equal(t, want, got, "seed %d", seed)
	}
}

func TestCursors(t *testing.T) {
	t.Parallel()
	const id = "01920000-0000-7000-8000-000000000001"
	got, err := idOf(cursorOf(id))
	require.NoError(t, err)
	require.Equal(t, id, got)
	none, err := idOf("")
	require.NoError(t, err)
	require.Empty(t, none)
	for _, cursor := range []string{"x", "%", id, cursorOf("1"), cursorOf(id + "0"), cursorOf("01920000-0000-7000-8000-00000000000x"), cursorOf("urn:uuid:" + id), cursorOf("{" + id + "}"), cursorOf(strings.ReplaceAll(id, "-", "")), cursorOf("01920000-0000-7000-8000-00000000000A")} {
		_, err := idOf(cursor)
		require.ErrorContains(t, err, "is not the next of a list")
	}
	seq, err := seqOf(cursorOf("77"))
	require.NoError(t, err)
	require.EqualValues(t, 77, seq)
	for _, cursor := range []string{"x", "77", cursorOf(id), cursorOf("7 7"), cursorOf("99999999999999999999"), cursorOf("-1"), cursorOf("+5"), cursorOf("0"), cursorOf("07")} {
		_, err := seqOf(cursor)
		require.ErrorContains(t, err, "is not the next of a list")
	}
}
