package refusals

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
)

func TestRefusalsOfOneMinuteAreTwoRows(t *testing.T) {
	t.Parallel()
	c := New(store.AuditRow{})
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	kind := store.AuditRow{Object: "attic", Code: "NOT_FOUND", Why: "no such invite"}
	c.note(kind, began)
	first := c.due(began, false)
	for i := range 500 {
		c.note(kind, began.Add(time.Duration(i)*100*time.Millisecond))
		require.Empty(t, c.due(began.Add(59*time.Second), false))
	}

	second := c.due(began.Add(window), false)

	require.Equal(t, []store.AuditRow{kind}, first)
	require.Len(t, second, 1)
	require.Equal(t, "no such invite (500 more since 2026-01-02T03:04:05Z)", second[0].Why)
	require.Equal(t, "attic", second[0].Object)
	require.Equal(t, "NOT_FOUND", second[0].Code)
	require.Empty(t, c.due(began.Add(3*window), false))
	require.Empty(t, c.kinds, "nothing is kept of a quiet minute")
}

func TestWhatWasCountedIsWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	c := New(store.AuditRow{})
	now := time.Now()
	for range 3 {
		c.note(store.AuditRow{Why: "no such invite"}, now)
	}

	rows := c.due(now, true)

	require.Len(t, rows, 2)
	require.Contains(t, rows[1].Why, "(2 more since")
}

func TestRefusalsForManyReasonsAreFewRows(t *testing.T) {
	t.Parallel()
	many := store.AuditRow{Action: "join.refused", Why: "too many"}
	c := New(many)
	now := time.Now()
	for i := range 10_000 {
		c.note(store.AuditRow{Why: fmt.Sprintf("field %d", i)}, now)
	}

	require.Len(t, c.due(now, false), maxKinds+1)

	rest := c.due(now.Add(window), false)
	require.Len(t, rest, 1)
	require.Equal(t, many.Action, rest[0].Action)
}
