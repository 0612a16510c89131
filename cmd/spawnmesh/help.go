package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Help is written for widestHelp columns, and for narrowestHelp at least.
const (
	widestHelp    = 80
	narrowestHelp = 40
)

// helpColumns is how wide help is shown; 0 = as it is written.
func (a *app) helpColumns() int {
	if columns := columnsOf(a.out); columns > 0 {
		return max(columns, narrowestHelp)
	}
	return 0
}

// help shows what c is for, as wide as the terminal is.
func (a *app) help(c *cobra.Command, _ []string) {
	if strings.HasPrefix(c.CommandPath(), c.Root().Name()+" worker") {
		for _, name := range []string{"context", "data-dir"} { // it asks its spoke: the one is refused, the other changes nothing
			c.InheritedFlags().Lookup(name).Hidden = true
		}
	}
	text := strings.TrimSpace(cmp.Or(c.Long, c.Short)) + "\n\n" + c.UsageString()
	fmt.Fprint(a.out, fitText(text, a.helpColumns()))
}

// fitText breaks paragraphs anew that have a line wider than columns, and beside its name what
// stands beside one. A line to be typed stays whole.
func fitText(text string, columns int) string {
	if columns == 0 {
		return text
	}
	wide := func(line string) bool { return cells(line) > columns }
	var lines, paragraph []string
	flush := func() {
		if slices.ContainsFunc(paragraph, wide) {
			paragraph = broken(strings.Join(paragraph, " "), columns)
		}
		lines, paragraph = append(lines, paragraph...), nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case line != "" && line[0] != ' ':
			paragraph = append(paragraph, line)
			continue
		case wide(line):
			flush()
			lines = append(lines, besideName(line, columns)...)
			continue
		}
		flush()
		lines = append(lines, line)
	}
	flush()
	return strings.Join(lines, "\n")
}

// meaning is a line with a name and, behind two blanks or more, what it means. Behind the longest name of a list of
// commands there is one.
var meaning = regexp.MustCompile(`^( +\S+(?: \S+)* {2,}| +[a-z-]{11,} )(\S.*)$`)

// besideName breaks what stands beside a name, unless that leaves it too little room.
func besideName(line string, columns int) []string {
	m := meaning.FindStringSubmatch(line)
	if m == nil || cells(m[1]) > columns/2 {
		return []string{line}
	}
	lines := broken(m[2], columns-cells(m[1]))
	for i := range lines {
		if i == 0 {
			lines[i] = m[1] + lines[i]
		} else {
			lines[i] = strings.Repeat(" ", cells(m[1])) + lines[i]
		}
	}
	return lines
}

// broken breaks text between words into lines of so many columns.
func broken(text string, columns int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case cells(line)+1+cells(word) <= columns:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}
