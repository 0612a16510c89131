package main

import "slices"

// A verdict is a target of the design, as a ratio between two contenders.
type verdict struct {
	Target string  `json:"target"`
	Ratio  float64 `json:"ratio"`
	Limit  float64 `json:"limit"`
	AtMost bool    `json:"at_most"` // the ratio is to be at most the limit, not at least
	Met    bool    `json:"met"`
}

// A target compares a figure of ours with a figure of another contender.
type target struct {
	text   string
	figure string
	peer   string
	limit  float64
	atMost bool
}

var targets = []target{
	{"P1 worked tasks/s, to River tuned", phaseWorked, "river", 2, false},
	{"P1 worked tasks/s, to graphile-worker batched", phaseWorked, "graphile", 1, false},
	{"P2 claims/s of 100 at 4 connections, to the raw update", phaseClaim100, "raw", 0.55, false},
	{"P2 claims/s of 500 at 2 connections, to the raw update", phaseClaim500, "raw", 0.55, false},
	{"P4 pickup p50, to River tuned", phasePickup + "-p50", "river", 1, true},
	{"P4 pickup p99, to River tuned", phasePickup + "-p99", "river", 1, true},
	{"P4 pickup p50 beside 1 M jobs, to River tuned", phasePickupBig + "-p50", "river", 1, true},
	{"P4 pickup p99 beside 1 M jobs, to River tuned", phasePickupBig + "-p99", "river", 1, true},
}

// judge returns the verdicts on all targets of which both sides were measured.
// A ratio is the median of the rounds' own ratios: the two sides of one are
// minutes apart, those of two rounds are not the same machine any more.
func judge(rounds []round) []verdict {
	var list []verdict
	for _, t := range targets {
		var ratios []float64
		for _, r := range rounds {
			ours, a := r["ours"][t.figure]
			peer, b := r[t.peer][t.figure]
			if a && b && peer > 0 {
				ratios = append(ratios, ours/peer)
			}
		}
		if len(ratios) == 0 {
			continue
		}
		v := verdict{Target: t.text, Ratio: median(ratios), Limit: t.limit, AtMost: t.atMost}
		v.Met = v.Ratio >= t.limit
		if t.atMost {
			v.Met = v.Ratio <= t.limit
		}
		list = append(list, v)
	}
	return list
}

// ratiosTo returns, for each other contender, what each figure of ours is to theirs.
func ratiosTo(rounds []round, peer string) values {
	of := map[string][]float64{}
	for _, r := range rounds {
		for figure, ours := range r["ours"] {
			if other := r[peer][figure]; other > 0 {
				of[figure] = append(of[figure], ours/other)
			}
		}
	}
	found := values{}
	for figure, list := range of {
		found[figure] = median(list)
	}
	return found
}

func medians(rounds []round) map[string]values {
	all := map[string]map[string][]float64{}
	for _, r := range rounds {
		for name, found := range r {
			if all[name] == nil {
				all[name] = map[string][]float64{}
			}
			for figure, value := range found {
				all[name][figure] = append(all[name][figure], value)
			}
		}
	}
	found := map[string]values{}
	for name, figures := range all {
		found[name] = values{}
		for figure, list := range figures {
			found[name][figure] = median(list)
		}
	}
	return found
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
