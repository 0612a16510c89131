package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spawnmesh/spawnmesh/internal/bench/record"
)

// A curveResult is a whole run.
type curveResult struct {
	record.Origin
	Settings string     `json:"settings"`
	Points   []curveRow `json:"points"`
}

// A curveRow is what was found at one size, in milliseconds.
type curveRow struct {
	Name        string  `json:"name"`
	Ready       int     `json:"ready"`
	Unclaimable int     `json:"unclaimable"`
	Ended       int     `json:"ended"`
	Claims      int     `json:"claims"` // single ones
	OneP50      float64 `json:"claim_p50_ms"`
	OneP99      float64 `json:"claim_p99_ms"`
	Batch       float64 `json:"claim_of_100_p50_ms_per_task"`
	Show        float64 `json:"show_p50_ms"`
	ListP50     float64 `json:"list_p50_ms"`
	ListP99     float64 `json:"list_p99_ms"`
}

// row sums up what was found.
func (p *curvePoint) row() curveRow {
	f := p.found
	return curveRow{Name: p.name, Ready: p.ready, Unclaimable: p.unclaimable, Ended: p.history, Claims: len(f.single),
		OneP50: quantile(f.single, 0.5), OneP99: quantile(f.single, 0.99), Batch: quantile(f.batch, 0.5),
		Show: quantile(f.show, 0.5), ListP50: quantile(f.list, 0.5), ListP99: quantile(f.list, 0.99)}
}

func showCurve(w io.Writer, rows []curveRow) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "ms\tone claim p50\tp99\tp99 ratio\tof 100, per task p50\tshow p50\tlist p50\tlist p99\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%.3f\t%.2f\t%.2f\t%.2f\t\n", r.Name, r.OneP50, r.OneP99, r.OneP99/rows[0].OneP99, r.Batch, r.Show, r.ListP50, r.ListP99)
	}
	t.Flush()
}
