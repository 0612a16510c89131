package main

import (
	"cmp"
	"slices"
	"unicode"

	"golang.org/x/text/width"

	"github.com/spawnmesh/spawnmesh/commands"
)

// cells returns how wide a terminal shows s.
func cells(s string) (n int) {
	for _, r := range s {
		n += cellsOf(r)
	}
	return n
}

// cellsOf returns how many cells of a terminal a character takes: ideographs two,
// what is put on top of another one none.
func cellsOf(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// shorten cuts s to limit cells; 0 means no limit.
func shorten(s string, limit int) string {
	if limit <= 0 || cells(s) <= limit {
		return s
	}
	n := 0
	for i, r := range s {
		if n += cellsOf(r); n >= limit {
			return s[:i] + "…"
		}
	}
	return s
}

// leastLast is how many cells of the last column are to be seen before another
// column gives way.
const leastLast = 20

// fit makes rows, of which the first is the head, as narrow as limit, as far as it
// can: first columns are left out, then one is cut. What is still too wide is cut at
// the end of the line.
func (t table) fit(rows [][]string, limit int) [][]string {
	if limit <= 0 {
		return rows
	}
	least := cmp.Or(t.least, len(commands.Unavailable))
	for _, name := range t.drops {
		if at := slices.Index(rows[0], name); at >= 0 && widthOf(rows, t.yields, least) > limit {
			for i, row := range rows {
				rows[i] = slices.Delete(slices.Clone(row), at, at+1)
			}
		}
	}
	over, column := widthOf(rows, "", 0)-limit, slices.Index(rows[0], t.yields)
	if column < 0 || over <= 0 {
		return rows
	}
	widest := 0
	for _, row := range rows {
		widest = max(widest, cells(row[column]))
	}
	for _, row := range rows {
		row[column] = shorten(row[column], max(widest-over, least))
	}
	return rows
}

// widthOf returns how wide rows are, of the column yields at most least cells, and of
// the last leastLast.
func widthOf(rows [][]string, yields string, least int) int {
	last := len(rows[0]) - 1
	sum := 2 * last
	for i, name := range rows[0] {
		widest := 0
		for _, row := range rows {
			widest = max(widest, cells(row[i]))
		}
		switch {
		case name == yields:
			widest = min(widest, least)
		case i == last:
			widest = min(widest, leastLast)
		}
		sum += widest
	}
	return sum
}
