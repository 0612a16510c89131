package policy

import (
	"fmt"
	"strings"
	"time"
)

// Limits bound every agent with all that it starts. 0 and "" = no limit, or a default that is
// named.
type Limits struct {
	Timeout   string  `yaml:"timeout" json:"timeout"`                           // longest run, "24h"
	Output    Size    `yaml:"output,omitempty" json:"output,omitempty"`         // bytes kept of each output stream; 0 means 16 MiB
	Memory    string  `yaml:"memory,omitempty" json:"memory,omitempty"`         // most memory, "2GiB"
	Pids      int     `yaml:"pids,omitempty" json:"pids,omitempty"`             // most processes and threads
	CPUTime   string  `yaml:"cpu_time,omitempty" json:"cpu_time,omitempty"`     // processor time that is used up, "2h"
	CPUs      float64 `yaml:"cpus,omitempty" json:"cpus,omitempty"`             // processors at a time
	OpenFiles int64   `yaml:"open_files,omitempty" json:"open_files,omitempty"` // of each process; 0 means 1024, which it may raise
}

// CPU is how much processor time an agent may use; 0 = no limit.
func (l Limits) CPU() time.Duration {
	d, _ := duration(l.CPUTime)
	return d
}

func (l Limits) check() *problem {
	if d, err := duration(l.CPUTime); l.CPUTime != "" && (err != nil || d <= 0) {
		return wrong("$.limits.cpu_time", "limits.cpu_time %q is not a duration such as 90s or 24h", l.CPUTime)
	}
	if l.CPUs != 0 && (l.CPUs < 0.01 || l.CPUs > 4096) {
		return wrong("$.limits.cpus", "limits.cpus %v is not a number of processors from 0.01 to 4096", l.CPUs)
	}
	for _, n := range []struct {
		name  string
		value int64
		of    string
	}{
		{"pids", int64(l.Pids), "processes"},
		{"open_files", l.OpenFiles, "files"},
	} {
		if n.value < 0 {
			return wrong("$.limits."+n.name, "limits.%s %d is negative; write a number of %s, or 0 for no limit", n.name, n.value, n.of)
		}
	}
	return nil
}

// words say what bounds an agent besides its time.
func (l Limits) words() string {
	var list []string
	add := func(is bool, format string, args ...any) {
		if is {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(l.Memory != "", "%s of memory", l.Memory)
	add(l.Pids > 0, "%d processes", l.Pids)
	add(l.CPUTime != "", "%s of processor time", l.CPUTime)
	add(l.CPUs > 0, "%v processors", l.CPUs)
	add(l.OpenFiles > 0, "%d open files", l.OpenFiles)
	return strings.Join(list, ", ")
}
