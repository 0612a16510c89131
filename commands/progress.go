package commands

import (
	"strings"
	"unicode/utf8"
)

// Limits of what an agent says of its progress, in bytes.
const (
	MaxUnit = 32
	MaxStep = 256
)

// A Progress is how far an agent has come, as it says itself. Each part may be missing, but not all.
type Progress struct {
	Current *int64 `json:"current,omitempty"`
	Total   *int64 `json:"total,omitempty"`
	Unit    string `json:"unit,omitempty"` // of both numbers
	Step    string `json:"step,omitempty"` // what it does now
}

// Validate checks p; the error is a [*Refused].
func (p Progress) Validate() error {
	if p == (Progress{}) {
		return Refuse(Validation, "the progress says nothing").Hinting("give one of current, total, unit and step")
	}
	for _, n := range []*int64{p.Current, p.Total} {
		if n != nil && (*n < 0 || *n > maxNumber) {
			return Refuse(Validation, "number %d of a progress is outside 0..%d", *n, int64(maxNumber))
		}
	}
	if err := checkLine("the unit of a progress", p.Unit, MaxUnit); err != nil {
		return err
	}
	return checkLine("the step of a progress", p.Step, MaxStep)
}

// Percent is how much of the total is done, from 0 to 100; nil where that is not known.
func (p Progress) Percent() *int {
	if p.Current == nil || p.Total == nil || *p.Total == 0 {
		return nil
	}
	percent := int(float64(min(*p.Current, *p.Total)) / float64(*p.Total) * 100)
	return &percent
}

// checkLine checks a text of one line.
func checkLine(name, s string, limit int) error {
	if err := checkText(name, s, limit); err != nil {
		return err
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return Refuse(Validation, "%s contains control characters", name)
	}
	return nil
}

// An AgentProgress is the progress of an agent in a heartbeat.
type AgentProgress struct {
	Progress
	At int64 `json:"at"` // ms since 1970, the clock of the spoke's database
}

// maxBeatStep bounds a step in a heartbeat, in bytes.
const maxBeatStep = 80

// Brief is p as it fits into a heartbeat.
func (p AgentProgress) Brief() AgentProgress {
	if len(p.Step) > maxBeatStep {
		cut := maxBeatStep - len("...")
		for !utf8.RuneStart(p.Step[cut]) {
			cut--
		}
		p.Step = p.Step[:cut] + "..."
	}
	return p
}
