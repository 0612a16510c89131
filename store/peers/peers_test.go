package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ only, without, want, err string }{
		"everybody takes part unless told otherwise": {want: "raw river graphile ours"},
		"one is left out":                 {without: "graphile", want: "raw river ours"},
		"the order stays that of a round": {only: "ours,raw", want: "raw ours"},
		"a name that is none is refused":  {only: "postgres", err: `no contender is called "postgres"`},
		"nobody is refused":               {only: "raw", without: "raw", err: "every contender is left out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := choose(c.only, c.without)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	rounds := []round{
		{"ours": {phaseWorked: 300, "pickup-p50": 2}, "river": {phaseWorked: 100, "pickup-p50": 1}},
		{"ours": {phaseWorked: 30, "pickup-p50": 1}, "river": {phaseWorked: 20, "pickup-p50": 2}},
		{"ours": {phaseWorked: 50, "pickup-p50": 3}, "river": {phaseWorked: 20, "pickup-p50": 1}},
	}
	list := judge(rounds)
	require.Len(t, list, 2, "targets without a figure on both sides have no verdict")
	require.InDelta(t, 2.5, list[0].Ratio, 1e-9, "the median of 3, 1.5 and 2.5, not the ratio of medians")
	require.True(t, list[0].Met)
	require.InDelta(t, 2, list[1].Ratio, 1e-9)
	require.False(t, list[1].Met, "a latency is met by being at most the limit")
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var times []float64
	for i := range 1000 {
		times = append(times, float64(999-i))
	}
	require.Equal(t, 500.0, quantile(times, 0.5))
	require.Equal(t, 990.0, quantile(times, 0.99))
	require.Equal(t, 7.0, quantile([]float64{7}, 0.99))
}

// Every contender that this program itself is must do all of its jobs, each
// once, and leave nothing unfinished.
func TestContendersDoEveryJobOnce(t *testing.T) {
	t.Parallel()
	s, err := startServer(t.Context(), "usual")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.close(context.Background())) })
	for _, name := range []string{"raw", "river", "ours"} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, s.fresh(t.Context(), name))
			address, err := s.url(name)
			require.NoError(t, err)
			c, err := of(name)
			require.NoError(t, err)
			_, err = c.open(t.Context(), address)
			require.NoError(t, err)
			defer c.close()
			requireEachOnce(t, c)
		})
	}
}

func requireEachOnce(t *testing.T, c contender) {
	t.Helper()
	const many, single = 700, 30
	var mu sync.Mutex
	var seen []int
	all := make(chan struct{})
	w := background(t.Context(), c, 20, func(j job) {
		mu.Lock()
		defer mu.Unlock()
		if seen = append(seen, j.Number); len(seen) == many+single {
			close(all)
		}
	})
	list := make([]job, many)
	for i := range list {
		list[i].Number = i
	}
	require.NoError(t, c.insertMany(t.Context(), list))
	for i := range single {
		require.NoError(t, c.insert(t.Context(), job{Number: many + i}))
	}
	require.NoError(t, w.await(all))
	require.NoError(t, w.end())
	slices.Sort(seen)
	for i, n := range seen {
		require.Equal(t, i, n)
	}
	require.Eventually(t, func() bool {
		left, err := c.unfinished(t.Context())
		return err == nil && !left
	}, 5*time.Second, 5*time.Millisecond)
}

func TestAContenderSaysWhatWentWrong(t *testing.T) {
	t.Parallel()
	out, in := io.Pipe()
	go func() {
		in.CloseWithError(contend(t.Context(), "raw", strings.NewReader(`{"phase":"open","url":"postgres://mesh@/none?host=/nowhere"}`+"\n"), in))
	}()
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Contains(t, string(text), `"error":"opening the database: `)
}
