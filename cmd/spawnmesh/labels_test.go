package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// What an agent was labelled with is shown wherever it is shown in full.
func showLabels(t *testing.T, h hand) {
	order := []string{"--spoke", "attic", "--runtime", "noop", "--label", "batch=" + newID(), "--label", "empty="}
	id := h.spawn(order...)
	var v hub.AgentView
	h.read(&v, 0, "status", id)
	require.Len(t, v.Labels, 2)
	text := v.Labels.Text()

	require.Regexp(t, `^batch=[-0-9a-f]+,empty=$`, text)
	require.Regexp(t, `(?m)^labels +`+text+`$`, h.do("status", id))
	require.Regexp(t, `(?m)^`+commands.ShortID(id)+` .* `+text+` +`+id+`$`, h.do("agents", "-o", "wide", "--limit", "1000"))

	key := []string{"spawn", "--spoke", "attic", "--runtime", "noop", "--idempotency-key", newID(), "--label"}
	h.do(append(key, "app=web")...)
	h.refused(exitConflict, "other content", append(key, "app=db")...)
	for words, label := range map[string]string{"has no =": "app", "is given twice": "app=db", "may be empty": "=x", "letters, digits": "app name=x"} {
		h.refused(exitMisuse, words, "spawn", "--spoke", "attic", "--label", "app=web", "--label", label, "--", "true")
	}
}

// Agents are listed by their labels, also more of them than one answer has.
func listByLabels(t *testing.T, h hand) {
	batch := "batch=" + newID()
	order := func(labels ...string) string {
		args := []string{"--spoke", "attic", "--runtime", "noop", "--label", batch}
		for _, l := range labels {
			args = append(args, "--label", l)
		}
		return h.spawn(args...)
	}
	web, db, bare := order("app=web", "tier=front"), order("app=db"), order()
	list := func(args ...string) []string {
		return strings.Fields(h.do(append([]string{"agents", "-o", "name", "-l", batch}, args...)...))
	}

	require.Equal(t, []string{bare, db, web}, list())
	require.Equal(t, []string{web}, list("-l", "app=web"))
	require.Equal(t, []string{db, web}, list("-l", "app"))
	require.Equal(t, []string{bare}, list("-l", "!app"))
	require.Equal(t, []string{bare, db}, list("--selector", "app!=web"))
	require.Equal(t, []string{bare}, list("-l", "app!=web,app!=db"))
	require.Equal(t, []string{bare, db}, list("--limit", "2"))
	require.Empty(t, list("-l", "app=web,tier!=front"))
	require.Contains(t, h.run("", "agents", "-l", batch, "-l", "app=none").err, "no such agents")
	h.refused(exitMisuse, "no term of a selector", "agents", "-l", "app in (web)")
	h.refused(exitMisuse, "-l is empty", "agents", "-l", "")
	h.refused(exitMisuse, "at once", "agents", "-l", "app=web", "-l", "app=db")
}

// A long list is asked for in pages, and what is left out of it is not what is missing.
func TestALongListIsOfPages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		there, limit int
		even         bool
		want, asked  int
		more         bool
	}{{2500, 50, false, 50, 1, true}, {50, 50, false, 50, 1, false}, {51, 50, false, 50, 1, true}, {2500, 2200, false, 2200, 3, true}, {2500, 9000, false, 2500, 3, false}, {2500, 2500, false, 2500, 3, false},
		{1000, 1000, false, 1000, 1, false}, {1001, 1000, false, 1000, 2, true}, {2500, 600, true, 600, 2, true}, {1200, 600, true, 600, 2, false}, {2500, 9000, true, 1250, 3, false}, {2500, math.MaxInt, false, 2500, 3, false}, {0, 50, false, 0, 1, false}, {10, 0, false, 0, 1, true}} {
		asked := 0
		list, more, err := paged(tt.limit, tt.even, func(cursor string, most int) (page control.Items[int], err error) {
			asked++
			at, _ := strconv.Atoi(cursor)
			for ; at < tt.there && most > 0; most-- {
				if at++; !tt.even || at%2 == 0 {
					page.Items = append(page.Items, at)
				}
			}
			if at < tt.there {
				page.Next = strconv.Itoa(at)
			}
			return page, nil
		})

		require.NoError(t, err)
		require.Len(t, list, tt.want, "%+v", tt)
		require.Equal(t, tt.more, more, "%+v", tt)
		require.True(t, slices.IsSorted(list))
		require.Equal(t, tt.asked, asked, "%+v", tt)
	}
}
