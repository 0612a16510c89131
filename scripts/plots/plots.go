package main

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
)

// spawns shows throughput and latency by the number of spawns in flight.
func spawns(r results) figure {
	rate := newPlot("Spawns by number in flight", "spawns in flight", "spawns per second")
	line(rate, "no process", blue, false, points(r.Noop.Figures, func(f spawnFigure) float64 { return f.PerSec }))
	line(rate, "a process each", orange, false, points(r.Spawn.Figures, func(f spawnFigure) float64 { return f.PerSec }))
	if r.Spawn.Limit > 0 {
		dots(rate, "processes under shims alone", grey, draw.PyramidGlyph{}, plotter.XYs{{X: float64(r.Spawn.Figures[len(r.Spawn.Figures)-1].InFlight), Y: r.Spawn.Limit}})
	}
	late := newPlot("Latency by number in flight, a process each", "spawns in flight", "ms, logarithmic")
	line(late, "start, median", blue, false, points(r.Spawn.Figures, func(f spawnFigure) float64 { return f.StartP50 }))
	line(late, "start, 99th percentile", blue, true, points(r.Spawn.Figures, func(f spawnFigure) float64 { return f.StartP99 }))
	line(late, "result, median", orange, false, points(r.Spawn.Figures, func(f spawnFigure) float64 { return f.ResultP50 }))
	line(late, "result, 99th percentile", orange, true, points(r.Spawn.Figures, func(f spawnFigure) float64 { return f.ResultP99 }))
	for _, p := range []*plot.Plot{rate, late} {
		logTicks(&p.X, number, inFlight(r.Spawn.Figures)...)
	}
	late.Y.Min, late.Y.Max = 1, 10*decade(late.Y.Max)
	logTicks(&late.Y, number, 1, 10, 100, 1000, 10_000)
	return figure{rate, late}
}

// claims shows what a claim costs as the backlog grows.
func claims(r results) figure {
	p := newPlot("One claim by the size of the backlog", "tasks that are ready, logarithmic", "milliseconds")
	var p50, p99, batch, front, ended plotter.XYs
	var ticks []float64
	for _, c := range r.Curve.Points {
		at := float64(c.Ready)
		switch {
		case c.Unclaimable > 0:
			front = append(front, plotter.XY{X: at, Y: c.P99})
		case c.Ended > 0:
			ended = append(ended, plotter.XY{X: at, Y: c.P99})
		default:
			p50, p99, batch = append(p50, plotter.XY{X: at, Y: c.P50}), append(p99, plotter.XY{X: at, Y: c.P99}), append(batch, plotter.XY{X: at, Y: c.Batch})
			ticks = append(ticks, at)
		}
	}
	line(p, "median", blue, false, p50)
	line(p, "99th percentile", blue, true, p99)
	dots(p, "99th percentile, with others in front that it may not have", orange, draw.PyramidGlyph{}, front)
	dots(p, "99th percentile, with a long history", green, draw.BoxGlyph{}, ended)
	each := newPlot("Per task, 100 in a claim", "tasks that are ready, logarithmic", "milliseconds per task")
	line(each, "median", blue, false, batch)
	for _, p := range []*plot.Plot{p, each} {
		p.Y.Max *= 1.2
		logTicks(&p.X, short, ticks...)
	}
	return figure{p, each}
}

// peers shows this project beside others.
func peers(r results) figure {
	worked := newPlot("Jobs claimed and completed", "", "jobs per second")
	bars(worked, "", blue, 0, 36, whole, of(r.Claim, "worked"))
	under(worked, titles...)
	pickup := newPlot("From insert to start, 100 jobs a second", "", "milliseconds")
	bars(pickup, "median", blue, -13, 24, ms, of(r.Claim, "pickup-p50"))
	bars(pickup, "99th percentile", orange, 13, 24, ms, of(r.Claim, "pickup-p99"))
	under(pickup, titles...)
	starts := newPlot(fmt.Sprintf("Starts of a process, %d in flight", r.Nex.Rounds[0].Ours.InFlight), "", "starts per second")
	bars(starts, "", blue, 0, 36, whole, plotter.Values{r.Nex.Nex, r.Nex.Ours})
	under(starts, "Nex", "spawnmesh")
	return figure{worked, pickup, starts}
}

// Contenders, in the order of bars and columns.
var (
	names  = []string{"raw", "river", "graphile", "ours"}
	titles = []string{"raw SQL", "River", "graphile-worker", "spawnmesh"}
)

func of(r claimRun, figure string) (values plotter.Values) {
	for _, name := range names {
		values = append(values, r.Medians[name][figure])
	}
	return values
}

func points(list []spawnFigure, of func(spawnFigure) float64) (xy plotter.XYs) {
	for _, f := range list {
		xy = append(xy, plotter.XY{X: float64(f.InFlight), Y: of(f)})
	}
	return xy
}

func inFlight(list []spawnFigure) (at []float64) {
	for _, f := range list {
		at = append(at, float64(f.InFlight))
	}
	return at
}

// decade is the power of ten that v is in.
func decade(v float64) float64 { return math.Pow(10, math.Floor(math.Log10(v))) }

func number(v float64) string { return fmt.Sprintf("%.0f", v) }

// short writes thousands and millions as k and M.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%g M", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%g k", v/1e3)
	}
	return number(v)
}
