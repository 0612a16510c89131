package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Breach is the limit that ended an attempt, with what was allowed and what was measured.
type Breach struct {
	Limit    Reason `json:"limit"` // one of [Breaches]
	Unit     string `json:"unit"`  // one of [BreachUnits]
	Allowed  int64  `json:"allowed"`
	Measured int64  `json:"measured"`
}

// Breaches are the reasons that name a limit of an agent.
var Breaches = []Reason{DeadlineElapsed, IdleTimeout, OOMKilled, CPULimit, ProcessLimit, DiskLimit, OutputLimit}

// BreachUnits are what limits of agents are counted in.
var BreachUnits = []string{"ms", "bytes", "inodes", "levels", "processes"}

func (b *Breach) check() error {
	switch {
	case !slices.Contains(Breaches, b.Limit):
		return Refuse(Validation, "%q is not a limit that ends an agent", Clip(string(b.Limit)))
	case !slices.Contains(BreachUnits, b.Unit):
		return Refuse(Validation, "%q is not a unit of a limit", Clip(b.Unit))
	case b.Allowed < 0 || b.Allowed > maxNumber || b.Measured < 0 || b.Measured > maxNumber:
		return Refuse(Validation, "a number of a limit is outside 0..%d", int64(maxNumber))
	}
	return nil
}

var breachWords = map[Reason]string{
	DeadlineElapsed: "ended at its timeout",
	IdleTimeout:     "ended as idle",
	OOMKilled:       "out of memory",
	CPULimit:        "out of processor time",
	ProcessLimit:    "out of processes",
	DiskLimit:       "out of disk",
	OutputLimit:     "too much output",
}

// Sentence says for people which limit it was, and by how much it was missed.
func (b *Breach) Sentence() string {
	measured, allowed := amount(b.Measured, b.Unit), amount(b.Allowed, b.Unit)
	return fmt.Sprintf("%s: %s of %s", breachWords[b.Limit], strings.TrimSuffix(measured, " "+counted(b.Unit)), allowed)
}

// counted is a unit that is said once of two numbers, "" for one that is part of its number.
func counted(unit string) string {
	if unit == "bytes" {
		return ""
	}
	return unit
}

// amount writes a number in its unit so that small differences show.
func amount(n int64, unit string) string {
	switch unit {
	case "ms":
		return (time.Duration(n) * time.Millisecond).String()
	case "bytes":
		for i, name := range []string{"GiB", "MiB", "KiB"} {
			if size := int64(1) << (30 - 10*i); n >= 10*size || n >= size && n%size == 0 {
				return fmt.Sprintf("%.4g %s", float64(n)/float64(size), name)
			}
		}
	}
	return fmt.Sprintf("%d %s", n, unit)
}
