// Package cron says when a schedule is due: by a text with five fields, and the clock of a time zone.
package cron

import (
	"strings"
	"time"
	_ "time/tzdata" // zones are known on hosts that have no files of them

	"github.com/robfig/cron/v3"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Timetable is when something is due. The zero value is not usable.
type Timetable struct {
	spec   *cron.SpecSchedule // by a clock that is never set
	zone   *time.Location
	hourly bool // due in every hour that passes
}

// maxText bounds the text of a timetable.
const maxText = 256

// everyHour is how the parser marks that a field is *.
const everyHour = 1 << 63

// Parse reads a text with five fields, or one of @hourly to @yearly. The error is a [*commands.Refused].
func Parse(text, zone string) (Timetable, error) {
	where, err := Zone(zone)
	if err != nil {
		return Timetable{}, err
	}
	spec, err := parse(text)
	if err != nil {
		return Timetable{}, err
	}
	spec.Location = time.UTC
	return Timetable{spec, where, spec.Hour&everyHour != 0}, nil
}

// Zone is a time zone by its IANA name.
func Zone(name string) (*time.Location, error) {
	where, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, commands.Refuse(commands.Validation, "time zone %q is not known", commands.Clip(name)).Hinting("write its IANA name, such as Europe/Berlin or UTC")
	}
	return where, nil
}

// Next is when it is due first after a moment; zero if that is not within five years.
//
// Where hours are named, each time of the day that is due counts once, whatever the clock does: one that is left out as
// the clock is put forward is due at the moment when that happens, and one that comes twice as it is put back is due the
// first time. Where the hour is *, what is due is due in every hour that passes.
func (t Timetable) Next(after time.Time) time.Time {
	if t.hourly {
		return t.nextInHours(after)
	}
	for by := clock(after.In(t.zone)); ; {
		by = t.spec.Next(by)
		if by.IsZero() {
			return by
		}
		if at := t.first(by); at.After(after) {
			return at
		}
	}
}

// nextInHours goes from one setting of the clock to the next: in between no hour is special.
func (t Timetable) nextInHours(after time.Time) time.Time {
	for within := after; ; {
		_, offset := within.In(t.zone).Zone()
		_, end := within.In(t.zone).ZoneBounds()
		ahead := time.Duration(offset) * time.Second
		at := t.spec.Next(after.UTC().Add(ahead))
		if at.IsZero() {
			return at
		}
		if at = at.Add(-ahead); end.IsZero() || at.Before(end) {
			return at.In(t.zone)
		}
		within, after = end, end.Add(-time.Nanosecond)
	}
}

// clock is what the clock shows at a moment, as a time of UTC.
func clock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// first is the first moment at which the clock shows a time, or later than that for the first time.
func (t Timetable) first(by time.Time) time.Time {
	at := time.Date(by.Year(), by.Month(), by.Day(), by.Hour(), by.Minute(), 0, 0, t.zone)
	start, end := at.ZoneBounds()
	switch shown := clock(at); {
	case shown.Before(by):
		return end // the clock leaves it out, and at is before that
	case shown.After(by):
		return start
	case start.IsZero():
		return at
	}
	_, now := at.Zone()
	_, before := start.Add(-time.Second).Zone()
	if earlier := at.Add(time.Duration(now-before) * time.Second); now < before && earlier.Before(start) {
		return earlier
	}
	return at
}

// MostMissed bounds what [Timetable.Missed] counts.
const MostMissed = 1000

// Missed is how often it was due after a moment, until now: at most MostMissed.
func (t Timetable) Missed(after, now time.Time) (n int) {
	for n < MostMissed {
		if after = t.Next(after); after.IsZero() || after.After(now) {
			break
		}
		n++
	}
	return n
}

var descriptors = []string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}

func refuse(text, format string, args ...any) *commands.Refused {
	return commands.Refuse(commands.Validation, "cron %q: "+format, append([]any{commands.Clip(text)}, args...)...)
}

// parse reads a text. The parser's own words name no field.
func parse(text string) (*cron.SpecSchedule, error) {
	const form = "write minute, hour, day of the month, month and day of the week, as in: 30 2 * * mon-fri; or one of "
	hint := form + strings.Join(descriptors, ", ")
	words := strings.Fields(text)
	switch {
	case strings.Contains(text, "TZ="):
		return nil, refuse(text, "a time zone is not part of it").Hinting("give the zone as a field of its own: --zone")
	case strings.HasPrefix(text, "@every"):
		return nil, refuse(text, "@every is not taken: it follows no clock").Hinting("write it as fields, as in: */15 * * * *")
	case len(text) > maxText:
		return nil, refuse(text, "it has more than %d bytes", maxText)
	case len(words) != len(fields) && !strings.HasPrefix(text, "@"):
		return nil, refuse(text, "there are %d fields, and not %d", len(words), len(fields)).Hinting("%s", hint)
	}
	if len(words) == len(fields) {
		for i, f := range fields {
			plain, err := f.plain(words[i])
			if err != nil {
				return nil, f.refuse(text, words[i], err)
			}
			words[i] = plain
		}
	}
	read, err := cron.ParseStandard(strings.Join(words, " "))
	spec, ok := read.(*cron.SpecSchedule)
	if err != nil || !ok {
		return nil, refuse(text, "there is no such name").Hinting("%s", hint)
	}
	if spec.Location = time.UTC; spec.Next(aLeapYear).IsZero() {
		return nil, refuse(text, "there is no such day in any year").Hinting("correct the day of the month, or the month")
	}
	return spec, nil
}

// aLeapYear has every day that there is.
var aLeapYear = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
