package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Limits bound every agent with all that it starts. What is left out has its default; none is no
// limit. 0 is neither, so it is refused, but of a reserve.
type Limits struct {
	Timeout   Amount `yaml:"timeout" json:"timeout"`                           // longest run, 24h
	Output    Amount `yaml:"output,omitempty" json:"output,omitempty"`         // bytes kept of each output stream
	Memory    Amount `yaml:"memory,omitempty" json:"memory,omitempty"`         // most memory, 2GiB
	Pids      Amount `yaml:"pids,omitempty" json:"pids,omitempty"`             // most processes and threads
	CPUTime   Amount `yaml:"cpu_time,omitempty" json:"cpu_time,omitempty"`     // processor time that is used up, 2h
	CPUs      Amount `yaml:"cpus,omitempty" json:"cpus,omitempty"`             // processors at a time, 1.5
	OpenFiles Amount `yaml:"open_files,omitempty" json:"open_files,omitempty"` // of each process
	Disk      Amount `yaml:"disk,omitempty" json:"disk,omitempty"`             // what its files take
	Files     Amount `yaml:"files,omitempty" json:"files,omitempty"`           // how many they are
	MaxOutput Amount `yaml:"max_output,omitempty" json:"max_output,omitempty"` // that it writes to each stream, kept or not
	Idle      Amount `yaml:"idle,omitempty" json:"idle,omitempty"`             // longest without output, 30m
	FileSize  Amount `yaml:"file_size,omitempty" json:"file_size,omitempty"`   // of each file that it writes

	Reserve   Amount `yaml:"reserve,omitempty" json:"reserve,omitempty"`             // free on the host's disk, or nothing starts
	FreeFiles Amount `yaml:"reserve_files,omitempty" json:"reserve_files,omitempty"` // the same, in files
	Inputs    Amount `yaml:"held_inputs,omitempty" json:"held_inputs,omitempty"`     // what is held of a hub for its orders
}

// What holds where a policy says nothing: far above what ordinary agents take.
const (
	defaultDisk         = 64 << 30
	defaultFiles        = 4_000_000
	defaultOutput       = 16 << 20
	defaultReserve      = 1 << 30
	defaultReserveFiles = 10_000
	defaultInputs       = 64 << 30
)

// leastOpenFiles is below what a program needs to start with its libraries.
const leastOpenFiles = 16

// A limit is one of the file, and what may be written there.
type limit struct {
	name   string
	amount Amount
	measure
	from, to    int64
	bounds      string // in words
	noneIsMeant bool
	left        string // what holds where it is left out
}

const (
	endless = 1<<63 - 1
	noLimit = "no limit"
)

func (l Limits) list() []limit {
	return []limit{
		{"timeout", l.Timeout, durations, 1, endless, "", true, noLimit},
		{"output", l.Output, sizes, 1, endless, "", false, "16MiB"},
		{"memory", l.Memory, sizes, 1 << 20, endless, " of at least 1MiB", true, noLimit},
		{"pids", l.Pids, counts, 1, 1 << 22, " from 1 to 4194304", false, "no limit, or 8192 where agents have users of their own"},
		{"cpu_time", l.CPUTime, durations, 1, endless, "", true, noLimit},
		{"cpus", l.CPUs, processors, 10, 4096_000, " from 0.01 to 4096", true, noLimit},
		{"open_files", l.OpenFiles, counts, leastOpenFiles, endless, " of at least 16, as no program starts with fewer", false, "1024, which a process may raise"},
		{"disk", l.Disk, sizes, 1, endless, "", true, "64GiB"},
		{"files", l.Files, counts, 1, endless, " of at least 1", true, "4000000"},
		{"max_output", l.MaxOutput, sizes, 1, endless, "", true, noLimit},
		{"idle", l.Idle, durations, int64(time.Second), endless, " of at least 1s", true, noLimit},
		{"file_size", l.FileSize, sizes, 1, endless, "", true, noLimit},
		{"reserve", l.Reserve, sizes, 0, endless, "", true, "1GiB"},
		{"reserve_files", l.FreeFiles, counts, 0, endless, " of at least 0", true, "10000"},
		{"held_inputs", l.Inputs, sizes, 1, endless, "", true, "64GiB"},
	}
}

// zeroForm is 0 in whatever unit.
var zeroForm = regexp.MustCompile(`^[-+]?0+(\.0*)?[A-Za-zµ]*$`)

func (l Limits) check() *problem {
	for _, x := range l.list() {
		if why := x.wrong(); why != "" {
			return wrong("$.limits."+x.name, "limits.%s %s", x.name, why)
		}
	}
	return nil
}

// wrong says what cannot be meant, and what to write.
func (l limit) wrong() string {
	instead := "leave it out for " + l.left
	if l.noneIsMeant {
		instead += ", or write none for no limit"
	}
	if l.noneIsMeant && l.left == noLimit {
		instead = "leave it out, or write none, for no limit"
	}
	switch n, err := l.read(l.amount); {
	case l.amount == "", l.amount == none && l.noneIsMeant:
		return ""
	case l.amount == none:
		return "cannot be none; " + instead
	case l.from > 0 && zeroForm.MatchString(string(l.amount)):
		return "is 0; " + instead
	case err != nil || n < l.from || n > l.to:
		return fmt.Sprintf("%q is not %s%s, such as %s; %s", l.amount, l.is, l.bounds, l.like, instead)
	}
	return ""
}

// Run is how long an agent may run; 0 = for ever.
func (l Limits) Run() time.Duration { return time.Duration(durations.of(l.Timeout)) }

// Kept is how much of each output stream is kept; 0 = as the supervisor does without a limit.
func (l Limits) Kept() int64 { return sizes.of(l.Output) }

// CPU is how much processor time an agent may use; 0 = no limit.
func (l Limits) CPU() time.Duration { return time.Duration(durations.of(l.CPUTime)) }

// MilliCPUs is how many thousandths of a processor an agent may use at a time; 0 = no limit.
func (l Limits) MilliCPUs() int64 { return processors.of(l.CPUs) }

// Quiet is how long an agent may write nothing; 0 = for ever.
func (l Limits) Quiet() time.Duration { return time.Duration(durations.of(l.Idle)) }

// Open is how many files a process may have open; 0 = as many as is usual.
func (l Limits) Open() int64 { return counts.of(l.OpenFiles) }

// Written is what an agent may write to each output stream; 0 = no limit.
func (l Limits) Written() int64 { return sizes.of(l.MaxOutput) }

// FileBytes is how long a file of an agent may be; 0 = no limit.
func (l Limits) FileBytes() int64 { return sizes.of(l.FileSize) }

// DiskBytes is what the files of an agent may take; 0 = no limit.
func (l Limits) DiskBytes() int64 { return sizes.or(l.Disk, defaultDisk) }

// DiskFiles is how many files an agent may have; 0 = no limit.
func (l Limits) DiskFiles() int64 { return counts.or(l.Files, defaultFiles) }

// ReserveBytes is what is left free on the disk of this host.
func (l Limits) ReserveBytes() int64 { return sizes.or(l.Reserve, defaultReserve) }

// ReserveFiles is how many files still fit on the disk of this host.
func (l Limits) ReserveFiles() int64 { return counts.or(l.FreeFiles, defaultReserveFiles) }

// HeldInputs is how many bytes the inputs of all orders of a hub may take that are known here; 0 = no limit.
func (l Limits) HeldInputs() int64 { return sizes.or(l.Inputs, defaultInputs) }

// InWords says what bounds an agent, its time first.
func (l Limits) InWords() string {
	time := "no end"
	if l.Run() > 0 {
		time = string(l.Timeout)
	}
	return time + " of time, " + l.words()
}

// words say what bounds an agent besides its time.
func (l Limits) words() string {
	var list []string
	add := func(a Amount, format string) {
		if a != "" && a != none {
			list = append(list, fmt.Sprintf(format, a))
		}
	}
	add(l.Memory, "%s of memory")
	add(l.Pids, "%s processes")
	add(l.CPUTime, "%s of processor time")
	add(l.CPUs, "%s processors")
	add(cmp.Or(l.OpenFiles, "1024"), "%s open files"+map[bool]string{true: ", which it may raise"}[l.OpenFiles == ""])
	if add(l.disk(), "%s"); l.disk() == none {
		list = append(list, "no end of disk and files")
	}
	add(l.FileSize, "%s a file")
	add(cmp.Or(l.Output, inUnits(defaultOutput)), "%s kept of each output stream")
	add(l.MaxOutput, "%s written to each output stream")
	add(l.Idle, "%s without output")
	return strings.Join(list, ", ")
}

// disk says what the files of an agent may take.
func (l Limits) disk() Amount {
	bytes, files := inUnits(l.DiskBytes()), l.DiskFiles()
	switch {
	case l.DiskBytes() == 0 && files == 0:
		return none
	case files == 0:
		return bytes + " of disk"
	case l.DiskBytes() == 0:
		return Amount(fmt.Sprintf("%d files", files))
	}
	return Amount(fmt.Sprintf("%s of disk in %d files", bytes, files))
}
