package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

func (a *app) checkOutput() error {
	if a.json {
		a.output = "json"
	}
	switch a.output {
	case "table", "wide", "json", "ndjson", "name":
		return nil
	}
	return misuse(fmt.Errorf("output %q is not one of table, wide, json, ndjson, name", a.output))
}

// A table is what a listing shows: one row per thing, the wide columns only
// with -o wide.
type table struct {
	head, wide []string
	rows       [][]string // of len(head) + len(wide) cells
	names      []string   // what -o name prints, one per row
	empty      string     // what is said instead of an empty table
}

// print writes v as the output format asks: the table for people, v itself for
// programs.
func (a *app) print(v any, list []any, t table) error {
	switch a.output {
	case "json":
		return a.printJSON(v)
	case "ndjson":
		for _, x := range list {
			if err := json.NewEncoder(a.out).Encode(x); err != nil {
				return err
			}
		}
		return nil
	case "name":
		for _, n := range t.names {
			fmt.Fprintln(a.out, n)
		}
		return nil
	}
	if len(t.rows) == 0 {
		fmt.Fprintln(a.err, t.empty)
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	columns := t.head
	if a.output == "wide" {
		columns = append(append([]string{}, t.head...), t.wide...)
	}
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	for _, row := range t.rows {
		cells := make([]string, len(columns))
		for i := range columns {
			cells[i] = printable(row[i])
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), " "))
	}
	return w.Flush()
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// anys turns a list into what print wants for ndjson.
func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = x
	}
	return out
}

// printable makes foreign text harmless on a terminal: control characters are
// shown, not obeyed.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || !unicode.IsControl(r) {
			return r
		}
		return '·'
	}, s)
}

// terminal reports whether w is one.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// ago says how long ago t was, for people.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Second:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// days is a duration flag that also knows d for days: "7d", "90s".
type days time.Duration

func (d *days) String() string { return time.Duration(*d).String() }

// Type names the value in help texts.
func (d *days) Type() string { return "duration" }

// Set reads the value of a flag.
func (d *days) Set(s string) error {
	factor := time.Duration(1)
	text := s
	if n, ok := strings.CutSuffix(s, "d"); ok {
		text, factor = n+"h", 24
	}
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration such as 90s, 15m, 2h or 7d", s)
	}
	*d = days(v * factor)
	return nil
}

// interactive reports whether a person sits at standard input.
func (a *app) interactive() bool {
	f, ok := a.in.(*os.File)
	return ok && terminal(f)
}
