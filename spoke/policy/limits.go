package policy

import (
	"cmp"
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
	Disk      Size    `yaml:"disk,omitempty" json:"disk,omitempty"`             // what its files take; 0 means 64 GiB
	Files     int64   `yaml:"files,omitempty" json:"files,omitempty"`           // how many they are; 0 means 4 million
	MaxOutput Size    `yaml:"max_output,omitempty" json:"max_output,omitempty"` // that it writes to each stream, kept or not
	Idle      string  `yaml:"idle,omitempty" json:"idle,omitempty"`             // longest without output, "30m"
	FileSize  Size    `yaml:"file_size,omitempty" json:"file_size,omitempty"`   // of each file that it writes

	Reserve   Size  `yaml:"reserve,omitempty" json:"reserve,omitempty"`             // free on the host's disk, or nothing starts; 0 means 1 GiB
	FreeFiles int64 `yaml:"reserve_files,omitempty" json:"reserve_files,omitempty"` // the same, in files; 0 means 10000
}

// CPU is how much processor time an agent may use; 0 = no limit.
func (l Limits) CPU() time.Duration {
	d, _ := duration(l.CPUTime)
	return d
}

// Quiet is how long an agent may write nothing; 0 = for ever.
func (l Limits) Quiet() time.Duration {
	d, _ := duration(l.Idle)
	return d
}

// What holds where a policy says nothing: far above what ordinary agents take.
const (
	defaultDisk         = 64 << 30
	defaultFiles        = 4_000_000
	defaultOutput       = 16 << 20
	defaultReserve      = 1 << 30
	defaultReserveFiles = 10_000
)

// DiskBytes is what the files of an agent may take.
func (l Limits) DiskBytes() int64 { return cmp.Or(int64(l.Disk), defaultDisk) }

// DiskFiles is how many files an agent may have.
func (l Limits) DiskFiles() int64 { return cmp.Or(l.Files, defaultFiles) }

// ReserveBytes is what is left free on the disk of this host.
func (l Limits) ReserveBytes() int64 { return cmp.Or(int64(l.Reserve), defaultReserve) }

// ReserveFiles is how many files still fit on the disk of this host.
func (l Limits) ReserveFiles() int64 { return cmp.Or(l.FreeFiles, defaultReserveFiles) }

func (l Limits) check() *problem {
	if d, err := duration(l.CPUTime); l.CPUTime != "" && (err != nil || d <= 0) {
		return wrong("$.limits.cpu_time", "limits.cpu_time %q is not a duration such as 90s or 24h", l.CPUTime)
	}
	if d, err := duration(l.Idle); l.Idle != "" && (err != nil || d < time.Second) {
		return wrong("$.limits.idle", "limits.idle %q is not a duration of at least 1s, such as 90s or 24h", l.Idle)
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
		{"files", l.Files, "files"},
		{"reserve_files", l.FreeFiles, "files"},
		{"disk", int64(l.Disk), "bytes"},
		{"file_size", int64(l.FileSize), "bytes"},
		{"max_output", int64(l.MaxOutput), "bytes"},
		{"reserve", int64(l.Reserve), "bytes"},
	} {
		if n.value < 0 {
			return wrong("$.limits."+n.name, "limits.%s %d is negative; write a number of %s, or leave it out", n.name, n.value, n.of)
		}
	}
	return nil
}

// InWords says what bounds an agent, its time first.
func (l Limits) InWords() string { return cmp.Or(l.Timeout, "no end") + " of time, " + l.words() }

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
	add(l.OpenFiles == 0, "1024 open files, which it may raise")
	add(true, "%s of disk in %d files", Size(l.DiskBytes()), l.DiskFiles())
	add(l.FileSize > 0, "%s a file", l.FileSize)
	add(true, "%s kept of each output stream", cmp.Or(l.Output, defaultOutput))
	add(l.MaxOutput > 0, "%s written to each output stream", l.MaxOutput)
	add(l.Idle != "", "%s without output", l.Idle)
	return strings.Join(list, ", ")
}
