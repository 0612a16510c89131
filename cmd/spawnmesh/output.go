package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
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
	return misuse("output %q is not one of table, wide, json, ndjson, name", a.output).Hinting("for people table, or wide; for programs json; a line each, ndjson, or name for the ids alone")
}

// wantsJSON reports whether a program reads what we print.
func (a *app) wantsJSON() bool { return a.json || a.output == "json" || a.output == "ndjson" }

// forPeople reports whether a person reads what we print.
func (a *app) forPeople() bool { return a.output == "table" || a.output == "wide" }

// A table is what a listing shows: one row per thing, the wide columns only
// with -o wide.
type table struct {
	head, wide []string
	rows       [][]string // of len(head) + len(wide) cells
	names      []string   // what -o name prints, one per row
	empty      string     // what is said instead of an empty table
	yields     string     // heading of the column that is cut first where a terminal is too narrow; "": the last
	least      int        // cells of it that stay; 0: those of the longest state
	drops      []string   // headings of columns that are left out before that, in this order
	whole      bool       // no row is cut: a terminal breaks its lines
}

// print writes v as the output format asks: the table for people, v itself for
// programs, each of list on a line of its own for ndjson.
func (a *app) print(v any, list []any, t table) error {
	switch a.output {
	case "json":
		return a.printJSON(v)
	case "ndjson":
		for _, x := range list {
			if err := a.printLine(x); err != nil {
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
	switch {
	case len(t.rows) == 0 && a.bare:
		return nil
	case len(t.rows) == 0:
		fmt.Fprintln(a.err, t.empty)
		return nil
	}
	columns := t.head
	if a.output == "wide" {
		columns = append(append([]string{}, t.head...), t.wide...)
	}
	rows := [][]string{columns}
	for _, row := range t.rows {
		rows = append(rows, row[:len(columns)])
	}
	limit := 0
	if a.output != "wide" && !t.whole {
		limit = columnsOf(a.out)
		rows = t.fit(rows, limit)
	}
	command := a.pager(len(rows))
	if command == "" {
		return a.align(rows, limit)
	}
	var text bytes.Buffer
	if err := a.alignTo(&text, rows, limit); err != nil {
		return err
	}
	return a.page(command, text.Bytes())
}

// printList is print for a list, which in JSON is never null.
func printList[T any](a *app, list []T, t table) error {
	if list == nil {
		list = []T{}
	}
	return a.print(list, anys(list), t)
}

// align writes rows with their columns under each other, each cut to limit
// cells where that is not 0.
func (a *app) align(rows [][]string, limit int) error { return a.alignTo(a.out, rows, limit) }

func (a *app) alignTo(w io.Writer, rows [][]string, limit int) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(strings.NewReplacer("\n", " ", "\t", " ").Replace(cell))
			widths[i] = max(widths[i], cells(row[i]))
		}
	}
	head, colours := rows[0], a.colours(a.out)
	if a.bare {
		rows = rows[1:]
	}
	for _, row := range rows {
		var line strings.Builder
		var spans []stretch
		for i, cell := range row {
			if colour := colourOf(cell); colours && colour != "" && (coloured[head[i]] || len(row) == 2 && coloured[row[0]]) {
				spans = append(spans, stretch{line.Len(), line.Len() + len(cell), colour})
			}
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-cells(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(w, paint(shorten(strings.TrimRight(line.String(), " "), limit), spans)); err != nil {
			return err
		}
	}
	return nil
}

// anys turns a list into what print wants for ndjson.
func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = x
	}
	return out
}

// printable makes foreign text harmless on a terminal: what would move the
// cursor, break the line, or turn the direction of reading, is shown as a dot.
func printable(s string) string {
	return strings.Map(harmless, s)
}

// harmless is a character, or what stands for one that is not.
func harmless(r rune) rune {
	if r != '\t' && r != '\n' && unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
		return '·'
	}
	return r
}

// ago says how long ago t was, for people, in three cells for the first 99 days.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Second:
		return "now"
	case d < 100*time.Second:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 100*time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// longAgo is [ago] in a sentence.
func longAgo(t time.Time) string {
	if text := ago(t); text != "now" {
		return text + " ago"
	}
	return "just now"
}

// since says how long ago t was, and in a wide table when.
func (a *app) since(t time.Time) string {
	if a.output == "wide" {
		return clock(&t)
	}
	return ago(t)
}

// ageOr is the heading of a column that [app.since] fills.
func (a *app) ageOr(exact string) string {
	if a.output == "wide" {
		return exact
	}
	return "AGE"
}
