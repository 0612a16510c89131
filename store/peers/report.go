package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// A row is one line of the table. Rates have no decimals, times and sizes do.
type row struct {
	figure string
	text   string
	format string
}

var rows = []row{
	{phaseInsertOne, "inserts/s, one a call, 8 connections", "%.0f"},
	{phaseInsertMany, "inserts/s, 1,000 a call, 4 connections", "%.0f"},
	{phaseClaim1, "claims/s, one a claim, 16 connections", "%.0f"},
	{phaseClaim100, "claims/s, 100 a claim, 4 connections", "%.0f"},
	{phaseClaim500, "claims/s, 500 a claim, 2 connections", "%.0f"},
	{phaseWorked, "worked jobs/s, claim to done", "%.0f"},
	{phasePickup + "-p50", "pickup p50 at 100/s, ms", "%.2f"},
	{phasePickup + "-p99", "pickup p99 at 100/s, ms", "%.2f"},
	{phasePickupBig + "-p50", "pickup p50 beside 1 M waiting jobs, ms", "%.2f"},
	{phasePickupBig + "-p99", "pickup p99 beside 1 M waiting jobs, ms", "%.2f"},
	{"client-rss", "client's memory while it works, MiB RSS", "%.1f"},
	{"server-pss", "server's memory while it works, MiB PSS", "%.1f"},
}

// show writes the report that a person reads.
func show(w io.Writer, names []string, r result) {
	fmt.Fprintf(w, "%s, %s\n%d jobs, medians of %d rounds\n\n", r.At.Format("2006-01-02 15:04"), r.Machine, r.Jobs, len(r.Rounds))
	fmt.Fprint(w, "server, the same for all:")
	for _, name := range shown {
		fmt.Fprintf(w, " %s=%s", name, r.Server[name])
	}
	fmt.Fprintln(w)
	for _, name := range names {
		fmt.Fprintf(w, "%s %s: %s\n", name, r.About[name].Version, r.About[name].Settings)
	}
	fmt.Fprintln(w)

	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	line(t, "", names)
	for _, row := range rows {
		cells := make([]string, len(names))
		for i, name := range names {
			cells[i] = cell(r.Medians[name], row)
		}
		line(t, row.text, cells)
	}
	t.Flush()
	printRatios(w, names, r)
}

// cell returns a figure as text, or a dash where the contender has none.
func cell(found values, row row) string {
	value, ok := found[row.figure]
	if !ok {
		return "–"
	}
	return fmt.Sprintf(row.format, value)
}

// line writes one row. The first column is padded here: the table aligns right.
func line(w io.Writer, first string, cells []string) {
	fmt.Fprintf(w, "%-42s\t%s\t\n", first, strings.Join(cells, "\t"))
}

// printRatios writes what ours is to each peer, and the targets.
func printRatios(w io.Writer, names []string, r result) {
	if len(r.Medians["ours"]) == 0 {
		return
	}
	fmt.Fprintln(w, "\nours to each, medians of the rounds' own ratios")
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	line(t, "", names)
	for _, row := range rows {
		cells := make([]string, len(names))
		for i, name := range names {
			row.format = "%.2f"
			cells[i] = cell(ratiosTo(r.Rounds, name), row)
		}
		line(t, row.text, cells)
	}
	t.Flush()
	fmt.Fprintln(w)
	for _, v := range r.Verdicts {
		word, sign := "MISSED", "≥"
		if v.Met {
			word = "met"
		}
		if v.AtMost {
			sign = "≤"
		}
		fmt.Fprintf(w, "%-58s %5.2f (%s %g) %s\n", v.Target, v.Ratio, sign, v.Limit, word)
	}
}
