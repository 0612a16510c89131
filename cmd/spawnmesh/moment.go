package main

import (
	"time"

	"github.com/spf13/pflag"
)

// A moment is a time in the past: how long ago it was, or when.
type moment struct {
	text string
	at   time.Time // zero = not given
}

var _ pflag.Value = (*moment)(nil)

func (m *moment) String() string { return m.text }

// asked is the time where one was given.
func (m *moment) asked() *time.Time {
	if m.text == "" {
		return nil
	}
	return &m.at
}

// Type names the value in help texts.
func (m *moment) Type() string { return "DURATION|TIME" }

// Set reads the value of a flag. A time without a zone is local; one without a day is
// the last such time of day.
func (m *moment) Set(s string) error {
	m.text = s
	var ago days
	if ago.Set(s) == nil {
		m.at = time.Now().Add(-time.Duration(ago))
		return nil
	}
	for _, form := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(form, s, time.Local); err == nil {
			m.at = at
			return nil
		}
	}
	for _, form := range []string{"15:04:05", "15:04"} {
		if at, err := time.Parse(form, s); err == nil {
			now := time.Now()
			if m.at = onDay(now, at); m.at.After(now) {
				m.at = onDay(now.AddDate(0, 0, -1), at)
			}
			return nil
		}
	}
	return misuse("%q is neither a duration such as 90s, 2h or 7d nor a time such as 09:00, 2026-11-22 or 2026-11-22T08:00:00Z", s)
}

// onDay returns the time of day at on a day in its zone.
func onDay(day, at time.Time) time.Time {
	return time.Date(day.Year(), day.Month(), day.Day(), at.Hour(), at.Minute(), at.Second(), 0, day.Location())
}
