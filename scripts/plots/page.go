package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// between finds a place in the page for a table.
var between = regexp.MustCompile(`(?s)<!-- figures: ([a-z-]+) -->\n.*?<!-- end -->`)

// refresh writes the tables into the page, each between its markers.
func refresh(page string, r results) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	var unknown []string
	fresh := between.ReplaceAllStringFunc(string(text), func(old string) string {
		name := between.FindStringSubmatch(old)[1]
		table := tables[name]
		if table == nil {
			unknown = append(unknown, name)
			return old
		}
		return fmt.Sprintf("<!-- figures: %s -->\n%s<!-- end -->", name, table(r))
	})
	if len(unknown) > 0 {
		return fmt.Errorf("%s has a place for %s, and there is no such table", page, strings.Join(unknown, ", "))
	}
	return os.WriteFile(page, []byte(fresh), 0o644)
}

// A grid is a table under construction.
type grid struct{ b strings.Builder }

// table begins one with the names of its columns, after a line that says when and where.
func table(o origin, columns ...string) *grid {
	g := &grid{}
	fmt.Fprintf(&g.b, "Measured on %s, %s", o.At.Format("2006-01-02"), o.Machine)
	if o.Load > 0 {
		fmt.Fprintf(&g.b, ", load average %.1f when it began", o.Load)
	}
	g.b.WriteString(".\n\n")
	g.row(columns...)
	g.row(strings.Split(strings.Repeat("---,", len(columns)-1)+"---", ",")...)
	return g
}

func (g *grid) row(cells ...string) { fmt.Fprintf(&g.b, "| %s |\n", strings.Join(cells, " | ")) }

func (g *grid) String() string { return g.b.String() }

// Forms of figures.
func whole(v float64) string { // with commas: 12,345
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func two(v float64) string { return fmt.Sprintf("%.2f", v) }

func mib(kib float64) string { return fmt.Sprintf("%.1f", kib/1024) }

// ms has three digits that say something.
func ms(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
