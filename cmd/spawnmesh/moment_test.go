package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMomentsOfFlags(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]func(now time.Time) time.Time{
		"90s":                  func(now time.Time) time.Time { return now.Add(-90 * time.Second) },
		"7d":                   func(now time.Time) time.Time { return now.Add(-7 * 24 * time.Hour) },
		"2026-11-22T08:00:00Z": func(time.Time) time.Time { return time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC) },
		"2026-11-22":           func(time.Time) time.Time { return time.Date(2026, 11, 22, 0, 0, 0, 0, time.Local) },
		"2026-11-22 08:30":     func(time.Time) time.Time { return time.Date(2026, 11, 22, 8, 30, 0, 0, time.Local) },
		"11:59":                func(now time.Time) time.Time { return now.Add(-time.Minute) },
		"12:00:00":             func(now time.Time) time.Time { return now },
		"12:01":                func(now time.Time) time.Time { return now.AddDate(0, 0, -1).Add(time.Minute) },
	} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			time.Sleep(time.Until(time.Date(now.Year(), now.Month(), now.Day()+1, 12, 0, 0, 0, time.Local)))
			var m moment

			err := m.Set(text)

			require.NoError(t, err, text)
			require.True(t, want(time.Now()).Equal(m.at), "%s is %s", text, m.at)
		})
	}
	for _, text := range []string{"", "9", "25:00", "12:60", "tomorrow", "-2h"} {
		require.Error(t, new(moment).Set(text), text)
	}
}
