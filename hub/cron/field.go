package cron

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/robfig/cron/v3"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A field is one of the five.
type field struct {
	name, takes string
	most        int // the highest value
	option      cron.ParseOption
}

var fields = []field{
	{"minute", "0 to 59", 59, cron.Minute},
	{"hour", "0 to 23", 23, cron.Hour},
	{"day of the month", "1 to 31", 31, cron.Dom},
	{"month", "1 to 12, or jan to dec", 12, cron.Month},
	{"day of the week", "0 to 7, or sun to sat, where 0 and 7 are Sunday", 7, cron.Dow},
}

// plain is a text as the parser takes it, which lets pass what says nothing, and knows no 7 and no range over the end of the
// week. The error says what is wrong.
func (f field) plain(text string) (string, error) {
	items := strings.Split(text, ",")
	for i, item := range items {
		base, step, stepped := strings.Cut(item, "/")
		n, err := strconv.Atoi(step)
		switch {
		case item == "":
			return "", wrong("a value of its list is missing")
		case stepped && err == nil && n > f.most:
			return "", wrong(fmt.Sprintf("its step %d is above %d", n, f.most))
		case f.option == cron.Dow:
			items[i] = week(base, step)
		}
	}
	plain := strings.Join(items, ",")
	_, err := cron.NewParser(f.option).Parse(plain)
	return plain, err
}

// refuse says what is wrong with a field. The parser's own words name none.
func (f field) refuse(text, word string, why error) error {
	said := ""
	if own, ok := errors.AsType[wrong](why); ok {
		said = ": " + string(own)
	}
	return refuse(text, "the %s %q is not understood%s", f.name, commands.Clip(word), said).
		Hinting("it is a value from %s; a range of them, as 1-5; a list, as 1,3; or steps, as */2", f.takes)
}

// wrong is what is wrong with a field, in our own words.
type wrong string

func (w wrong) Error() string { return string(w) }

var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// day is a day of the week as a number; Sunday is 0 and, as a number, also 7.
func day(text string) (n int, ok bool) {
	if n = slices.Index(days, strings.ToLower(text)); n >= 0 {
		return n, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= 7
}

// week is a day or a range of days, which may go over the end of the week; what is neither stays as it is.
func week(base, step string) string {
	as := base
	if step != "" {
		as += "/" + step
	}
	first, last, isRange := strings.Cut(base, "-")
	from, ok := day(first)
	if !ok {
		return as
	}
	if !isRange {
		return strings.Replace(as, base, strconv.Itoa(from%7), 1)
	}
	to, ok := day(last)
	by, err := strconv.Atoi(step)
	if !ok || step != "" && (err != nil || by < 1) {
		return as
	}
	if to < from {
		to += 7
	}
	var list []string
	for n := from; n <= to; n += max(by, 1) {
		list = append(list, strconv.Itoa(n%7))
	}
	return strings.Join(list, ",")
}
