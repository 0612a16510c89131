package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

func TestRefusalsOfOneMinuteAreTwoRows(t *testing.T) {
	t.Parallel()
	var r joinRefusals
	r.start()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	kind := joinRefusal{name: "attic", code: commands.NotFound, why: "no such invite"}
	r.note(kind, began)
	first := r.due(began, false)
	for i := range 500 {
		r.note(kind, began.Add(time.Duration(i)*100*time.Millisecond))
		require.Empty(t, r.due(began.Add(59*time.Second), false))
	}

	second := r.due(began.Add(refusalWindow), false)

	require.Len(t, first, 1)
	require.Equal(t, "no such invite", first[0].Why)
	require.Len(t, second, 1)
	require.Equal(t, "no such invite (500 more since 2026-01-02T03:04:05Z)", second[0].Why)
	require.Equal(t, "attic", second[0].Object)
	require.Equal(t, "NOT_FOUND", second[0].Code)
	require.Empty(t, r.due(began.Add(3*refusalWindow), false))
	require.Empty(t, r.kinds, "nothing is kept of a quiet minute")
}

func TestWhatWasCountedIsWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	var r joinRefusals
	r.start()
	now := time.Now()
	for range 3 {
		r.note(joinRefusal{why: "no such invite"}, now)
	}

	rows := r.due(now, true)

	require.Len(t, rows, 2)
	require.Contains(t, rows[1].Why, "(2 more since")
}

func TestRefusalsForManyReasonsAreFewRows(t *testing.T) {
	t.Parallel()
	var r joinRefusals
	r.start()
	now := time.Now()
	for i := range 10_000 {
		r.note(joinRefusal{why: fmt.Sprintf("field %d", i)}, now)
	}

	require.Len(t, r.due(now, false), maxRefusals+1)

	require.Len(t, r.due(now.Add(refusalWindow), false), 1)
}
