package main

import (
	"fmt"
	"strings"
)

// A target is a ratio or a size that was set before it was measured.
type target struct {
	what   string
	value  float64
	limit  float64
	atMost bool
	unit   string
}

func (t target) met() string {
	if t.atMost && t.value <= t.limit || !t.atMost && t.value >= t.limit {
		return "met"
	}
	return "**missed**"
}

func (t target) bound() string {
	sign := "≥"
	if t.atMost {
		sign = "≤"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %g %s", sign, t.limit, t.unit))
}

// summary is every target with what was found.
func summary(r results) string {
	g := &grid{}
	g.row("what", "target", "measured", "")
	g.row("---", "---", "---", "---")
	for _, t := range targets(r) {
		g.row(t.what, t.bound(), two(t.value), t.met())
	}
	return g.String()
}

func targets(r results) (list []target) {
	for _, v := range r.Claim.Verdicts {
		_, what, _ := strings.Cut(v.Target, " ") // after its number
		list = append(list, target{what, v.Ratio, v.Limit, v.AtMost, "×"})
	}
	list = append(list, ofCurve(r.Curve)...)
	list = append(list,
		target{"start of one spawn, to the sum of its parts", r.Spawn.Ratio, 1.5, true, "×"},
		target{"processor time of a spawn without a process, to a bare pipeline's", r.Bare.Medians.Ratio, 4, true, "×"},
		target{"spawns/s with a process, to processes under shims alone", r.Spawn.OfLimit, 0.8, false, "×"},
		target{"starts/s, to Nex", r.Nex.Ratio, 8, false, "×"})
	if shim, ok := ofShim(r.Go); ok {
		list = append(list, target{"processor time of a shim, to an empty Go program's", shim, 1.6, true, "×"})
	}
	list = append(list, ofIdle(r.Idle)...)
	list = append(list, ofAccept(r.Accept)...)
	return append(append(list, ofRead(r.Read)...), ofFollow(r.Follow)...)
}

// ofAccept compares an order at a hub with the longer history with one at the other.
func ofAccept(r acceptRun) []target {
	h := r.Histories
	if len(h) < 2 {
		return nil
	}
	what := fmt.Sprintf("an order where %s have ended, to one where %s have", short(float64(h[1].Ended)), short(float64(h[0].Ended)))
	return []target{
		{"median of " + what, r.Ratio, 1.1, true, "×"},
		{"99th percentile of " + what, h[1].P99 / h[0].P99, 1.1, true, "×"},
		{"processor time of " + what, r.CPURatio, 1.1, true, "×"}}
}

// ofRead compares what is asked of the larger hub with what is asked of the smaller one.
func ofRead(r readRun) (list []target) {
	for _, q := range r.Questions {
		list = append(list, target{fmt.Sprintf("99th percentile of a question for %s, %s ended", q.Name, short(float64(r.Large.Ended))), q.P99, 1.5, true, "×"})
	}
	return list
}

// ofFollow is what those get who follow a hub, when there are most of them.
func ofFollow(r followRun) []target {
	if len(r.Followed) == 0 {
		return nil
	}
	f := r.Followed[len(r.Followed)-1]
	if f.Seconds == 0 { // a run of before did not say how long it took
		return []target{{fmt.Sprintf("deliveries to each of %d webhooks, to the events that each of %d clients has read beside them", r.Webhooks, f.Clients), float64(f.Told) / float64(f.Events), 1, false, "×"}}
	}
	return []target{
		{fmt.Sprintf("changes that the last of %d clients has read", f.Clients), float64(f.Events) / f.Seconds, 100, false, "/s"},
		{fmt.Sprintf("deliveries to each of %d webhooks beside them", r.Webhooks), float64(f.Told) / f.Seconds, 100, false, "/s"}}
}

// ofCurve compares each size of the backlog with the first.
func ofCurve(c curveRun) (list []target) {
	for _, p := range c.Points[1:] {
		t := target{"99th percentile of a claim, " + backlogOf(p), p.P99 / c.Points[0].P99, 1.5, true, "×"}
		if p.Unclaimable > 0 {
			t.limit = 2
		}
		list = append(list, t)
	}
	return list
}

// ofShim is the processor time of a shim to that of an empty program.
func ofShim(g goRun) (float64, bool) {
	for _, b := range g.Benchmarks {
		if b.Name == "Shim" {
			return b.Values["x-empty"], true
		}
	}
	return 0, false
}

// ofIdle is what idle instances may hold and use.
func ofIdle(run idleRun) (list []target) {
	first := map[string]idle{}
	for _, i := range run.Idle {
		if _, ok := first[i.Name]; !ok {
			first[i.Name] = i
		}
		if i.Name == "hub" && i.Spokes == 10 {
			list = append(list, target{"hub with 10 spokes, resident", i.RSS / 1024, 60, true, "MiB"})
		}
		if h, ok := first["hub"]; ok && i.Name == "hub" && i.Spokes > h.Spokes {
			list = append(list, target{fmt.Sprintf("hub for each further spoke, up to %d, resident", i.Spokes), (i.RSS - h.RSS) / 1024 / float64(i.Spokes-h.Spokes), 1, true, "MiB"})
		}
		if i.Name == "hub" && i.Spokes == 20 {
			list = append(list, target{"idle hub with 20 spokes and its Postgres, processor time", i.CPU + i.PostgresCPU, 1, true, "% of a core"})
		}
	}
	for _, i := range first {
		if i.Name != "hub" {
			list = append(list, target{"idle spoke, resident", i.RSS / 1024, 30, true, "MiB"}, target{"its Postgres, proportional", i.Postgres / 1024, 25, true, "MiB"},
				target{"idle spoke and its Postgres, processor time", i.CPU + i.PostgresCPU, 0.2, true, "% of a core"})
		}
	}
	return list
}
