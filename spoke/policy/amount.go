package policy

import (
	"encoding/json"
	"strconv"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An Amount is a limit as it is written: a number, perhaps with a unit, or none; "" = left out.
type Amount string

const none Amount = "none"

// MarshalYAML writes a number as one.
func (a Amount) MarshalYAML() (any, error) {
	if n, err := strconv.ParseInt(string(a), 10, 64); err == nil {
		return n, nil
	}
	if x, err := strconv.ParseFloat(string(a), 64); err == nil {
		return x, nil
	}
	return string(a), nil
}

// MarshalJSON writes a number as one.
func (a Amount) MarshalJSON() ([]byte, error) {
	v, err := a.MarshalYAML()
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// What limits are measured in, each with how its amounts are read.
var (
	durations  = measure{"a duration", "90s or 24h", func(a Amount) (int64, error) { d, err := duration(string(a)); return int64(d), err }}
	sizes      = measure{"a size", "512MiB, 2GiB or a number of bytes", func(a Amount) (int64, error) { return commands.ReadSize(string(a)) }}
	counts     = measure{"a whole number", "100", func(a Amount) (int64, error) { return strconv.ParseInt(string(a), 10, 64) }}
	processors = measure{"a number of processors", "1.5 or 2", readProcessors}
)

type measure struct {
	is   string
	like string // examples
	read func(Amount) (int64, error)
}

// readProcessors reads thousandths of a processor.
func readProcessors(a Amount) (int64, error) {
	x, err := strconv.ParseFloat(string(a), 64)
	if err == nil && !(x >= -4096 && x <= 1<<20) { // nor is NaN a number of them
		err = strconv.ErrRange
	}
	return int64(x * 1000), err
}

// of returns an amount that was checked, 0 for none and what is left out.
func (m measure) of(a Amount) int64 {
	n, err := m.read(a)
	if err != nil {
		return 0
	}
	return n
}

// or returns an amount that was checked, 0 for none.
func (m measure) or(a Amount, otherwise int64) int64 {
	if a == "" {
		return otherwise
	}
	return m.of(a)
}
