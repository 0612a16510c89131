package cron_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/cron"
)

func parse(t require.TestingT, text, zone string) cron.Timetable {
	table, err := cron.Parse(text, zone)
	require.NoError(t, err)
	return table
}

// due are the first n times after a moment, as the clock of the zone shows them with its offset.
func due(t require.TestingT, text, zone, after string, n int) (list []string) {
	const form = "2006-01-02 15:04 -0700"
	at, err := time.Parse(form, after)
	require.NoError(t, err)
	where, err := cron.Zone(zone)
	require.NoError(t, err)
	for table := parse(t, text, zone); n > 0; n-- {
		at = table.Next(at)
		list = append(list, at.In(where).Format(form))
	}
	return list
}

// Each time of a day counts once: one that the clock leaves out is due when the clock is put forward, and one that it
// shows twice is due the first time.
func TestADueTimeCountsOnceWhateverTheClockDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, zone, after string
		want              []string
	}{
		"Berlin, forward":            {"30 2 * * *", "Europe/Berlin", "2026-03-28 12:00 +0100", []string{"2026-03-29 03:00 +0200", "2026-03-30 02:30 +0200"}},
		"Berlin, several left out":   {"0,30 2 * * *", "Europe/Berlin", "2026-03-28 12:00 +0100", []string{"2026-03-29 03:00 +0200", "2026-03-30 02:00 +0200"}},
		"Berlin, back":               {"30 2 * * *", "Europe/Berlin", "2026-10-24 12:00 +0200", []string{"2026-10-25 02:30 +0200", "2026-10-26 02:30 +0100"}},
		"Berlin, in the second hour": {"30 2 * * *", "Europe/Berlin", "2026-10-25 02:10 +0100", []string{"2026-10-26 02:30 +0100"}},
		"Berlin, each hour, forward": {"0 * * * *", "Europe/Berlin", "2026-03-29 00:30 +0100", []string{"2026-03-29 01:00 +0100", "2026-03-29 03:00 +0200", "2026-03-29 04:00 +0200"}},
		"Berlin, each hour, back":    {"0 * * * *", "Europe/Berlin", "2026-10-25 01:30 +0200", []string{"2026-10-25 02:00 +0200", "2026-10-25 02:00 +0100", "2026-10-25 03:00 +0100"}},
		"New York, forward":          {"15 2 * * *", "America/New_York", "2026-03-07 12:00 -0500", []string{"2026-03-08 03:00 -0400", "2026-03-09 02:15 -0400"}},
		"New York, back":             {"15 1 * * *", "America/New_York", "2026-10-31 12:00 -0400", []string{"2026-11-01 01:15 -0400", "2026-11-02 01:15 -0500"}},
		"Lord Howe, half an hour":    {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00 +1030", []string{"2026-10-04 02:30 +1100", "2026-10-05 02:15 +1100"}},
		"Lord Howe, back":            {"45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00 +1100", []string{"2026-04-05 01:45 +1100", "2026-04-06 01:45 +1030"}},
		"Cairo, no midnight":         {"0 0 * * *", "Africa/Cairo", "2026-04-23 12:00 +0200", []string{"2026-04-24 01:00 +0300", "2026-04-25 00:00 +0300"}},
		"Cairo, each hour of a day":  {"0 * 24 4 *", "Africa/Cairo", "2026-04-23 12:00 +0200", []string{"2026-04-24 01:00 +0300", "2026-04-24 02:00 +0300"}},
		"a leap day":                 {"0 0 29 2 *", "UTC", "2026-11-26 00:00 +0000", []string{"2028-02-29 00:00 +0000", "2032-02-29 00:00 +0000"}},
		"either day":                 {"0 0 13 * fri", "UTC", "2026-11-12 00:00 +0000", []string{"2026-11-13 00:00 +0000", "2026-11-20 00:00 +0000"}},
		"a name":                     {"@weekly", "UTC", "2026-11-26 00:00 +0000", []string{"2026-11-29 00:00 +0000"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, due(t, c.text, c.zone, c.after, len(c.want))) })
	}
}

// What is due next is later, whatever the text, the zone and the moment, and nothing was due in between.
func TestTimeGoesOn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"*/5 * * * *", "30 2 * * *", "0 0 * * *", "15 1,2,3 * * *", "0 0 1 * *", "7 * * * mon", "@daily"}).Draw(t, "text")
		zone := rapid.SampledFrom([]string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Sao_Paulo", "Asia/Kathmandu", "UTC"}).Draw(t, "zone")
		after := time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "after"), 0)
		table := parse(t, text, zone)

		next := table.Next(after)

		require.True(t, next.After(after))
		between := after.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(after))-1).Draw(t, "between")))
		require.True(t, table.Next(between).Equal(next), "%s and %s", table.Next(between), next)
	})
}

func TestMissedIsBounded(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	table := parse(t, "*/10 * * * *", "UTC")

	require.Equal(t, 0, table.Missed(from, from.Add(10*time.Minute-time.Second)))
	require.Equal(t, 6, table.Missed(from, from.Add(time.Hour)))
	require.Equal(t, cron.MostMissed, table.Missed(from, from.Add(1<<31*time.Second)))
}

// What is wrong is named: by the field, where there is one.
func TestWhatCannotBeDueIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"61 * * * *":           `the minute "61" is not understood`,
		"0 24 * * *":           `the hour "24" is not understood`,
		"0 0 0 * *":            `the day of the month "0" is not understood`,
		"0 0 * foo *":          `the month "foo" is not understood`,
		"0 0 * * 8":            `the day of the week "8" is not understood`,
		"0 0 * * fri-8":        `the day of the week "fri-8" is not understood`,
		"0 0 * * fri-mon/0":    `the day of the week "fri-mon/0" is not understood`,
		"0 0 * * friday":       `the day of the week "friday" is not understood`,
		"*/90 * * * *":         `the minute "*/90" is not understood: its step 90 is above 59`,
		"0 1-5/24 * * *":       `the hour "1-5/24" is not understood: its step 24 is above 23`,
		"1,,2 * * * *":         `the minute "1,,2" is not understood: a value of its list is missing`,
		"0 ,3 * * *":           `the hour ",3" is not understood: a value of its list is missing`,
		"0 0 1, * *":           `the day of the month "1," is not understood: a value of its list is missing`,
		"5-1 * * * *":          `the minute "5-1" is not understood`,
		"*/0 * * * *":          `the minute "*/0" is not understood`,
		"0 0 30 2 *":           "there is no such day in any year",
		"0 0 31 2,4,6 *":       "there is no such day in any year",
		"* * * *":              "there are 4 fields, and not 5",
		"0 * * * * *":          "there are 6 fields, and not 5",
		"":                     "there are 0 fields, and not 5",
		"CRON_TZ=UTC 0 * * *":  "a time zone is not part of it",
		"TZ=UTC 0 0 * * *":     "a time zone is not part of it",
		"@every 10s":           "@every is not taken",
		"@reboot":              "there is no such name",
		"@daily @daily":        "there is no such name",
		"0 0 * * \x00\x1b[31m": "the day of the week",
	} {
		_, err := cron.Parse(text, "UTC")

		require.ErrorContains(t, err, want, text)
		require.Equal(t, commands.Validation, commands.CodeOf(err), text)
	}
	for _, zone := range []string{"", "Local", "Europe/Nowhere", "../../etc/passwd", "CEST+2"} {
		_, err := cron.Parse("* * * * *", zone)
		require.ErrorContains(t, err, "is not known", zone)
		require.Equal(t, commands.Validation, commands.CodeOf(err), zone)
	}
}

// Days of the week are as crontab(5) has them: 7 is Sunday, too, and a range may go over the end of the week.
func TestDaysOfTheWeek(t *testing.T) {
	t.Parallel()
	const sunday = "2026-11-29 00:00 +0000"
	for text, want := range map[string]string{"7": "0", "0-7": "0,1,2,3,4,5,6", "5-7": "0,5,6", "fri-mon": "0,1,5,6", "Fri-SUN,tue": "0,2,5,6", "sat-sun": "0,6", "6-2": "0,1,2,6",
		"fri-mon/2": "0,5", "7-7": "0", "mon-fri": "1,2,3,4,5", "sun-sat/3": "0,3,6", "sun-sun": "0"} {
		require.Equal(t, due(t, "0 12 * * "+want, "UTC", sunday, 8), due(t, "0 12 * * "+text, "UTC", sunday, 8), text)
	}
}
