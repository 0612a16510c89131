package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store"
)

// Every list has its own usual length and bound, and says it.
func TestTheLimitOfAList(t *testing.T) {
	t.Parallel()
	none := func(int) ([]store.AuditRow, error) { return nil, nil }
	for what, list := range map[string]struct {
		most    int
		bounded func(*int) error
	}{
		"tasks": {10000, func(limit *int) error { _, err := termsOf(api.ListTasksParams{Limit: limit}); return err }},
		"audit": {10000, func(limit *int) error { _, err := newest(t.Context(), limit, nil, none); return err }},
		"backlog": {1000, func(limit *int) error {
			_, err := filterOf(t.Context(), nil, api.ListBacklogTasksParams{Limit: limit})
			return err
		}},
		"questions": {1000, func(limit *int) error { _, err := questionsAsked(api.ListQuestionsParams{Limit: limit}); return err }},
	} {
		for limit, fits := range map[int]bool{-1: false, 0: false, 1: true, list.most: true, list.most + 1: false} {
			err := list.bounded(&limit)
			if fits {
				require.NoError(t, err, "%s: %d", what, limit)
				continue
			}
			require.Equal(t, commands.Validation, commands.CodeOf(err), "%s: %d", what, limit)
			require.ErrorContains(t, err, fmt.Sprintf("limit is a number from 1 to %d", list.most), what)
		}
		require.NoError(t, list.bounded(nil), what)
	}
	usual, err := termsOf(api.ListTasksParams{})
	require.NoError(t, err)
	require.Equal(t, 50, usual.Limit)
	_, err = newest(t.Context(), nil, nil, func(limit int) ([]store.AuditRow, error) {
		require.Equal(t, 1000, limit)
		return nil, nil
	})
	require.NoError(t, err)
}

func TestHowLongAnAnswerWaits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 0, "0s": 0, "30s": 30 * time.Second, "1m": time.Minute, "61s": time.Minute, "9000h": time.Minute} {
		got, err := waitOf(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"-1ns", "-1h", "30", "soon", "99999999999h"} {
		_, err := waitOf(text)
		require.Equal(t, commands.Validation, commands.CodeOf(err), text)
	}
}

func TestHowLongATokenLasts(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for life, want := range map[time.Duration]time.Duration{0: 90 * day, time.Second: time.Second, 366 * day: 366 * day} {
		got, err := lifeOf(life.Milliseconds())
		require.NoError(t, err, life)
		require.Equal(t, want, got)
	}
	for _, ms := range []int64{-1, 1, 999, (366 * day).Milliseconds() + 1, 1 << 62, -1 << 62} {
		_, err := lifeOf(ms)
		require.Equal(t, commands.Validation, commands.CodeOf(err), ms)
		require.ErrorContains(t, err, "a token can be used for 1s to 366d", ms)
	}
}
