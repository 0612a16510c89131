package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// CPU is the processor time of one spawn, in milliseconds, by where it went. What agents and
// their shims take is not in it.
type CPU struct {
	Hub           float64 `json:"hub_ms"`
	HubPostgres   float64 `json:"hub_postgres_ms"`
	Spoke         float64 `json:"spoke_ms"`
	SpokePostgres float64 `json:"spoke_postgres_ms"`
}

// Total is all of it.
func (c CPU) Total() float64 { return c.Hub + c.HubPostgres + c.Spoke + c.SpokePostgres }

// since returns what one of n spawns took of what was used after before.
func (c CPU) since(before CPU, n int) CPU {
	each := func(now, then float64) float64 { return (now - then) / float64(n) }
	return CPU{each(c.Hub, before.Hub), each(c.HubPostgres, before.HubPostgres), each(c.Spoke, before.Spoke), each(c.SpokePostgres, before.SpokePostgres)}
}

// used returns what a mesh has used since it started.
func used(m *fleet.Mesh) (c CPU, err error) {
	if c.Hub, c.HubPostgres, err = Used(m.Hub.Cmd.Process.Pid); err != nil {
		return c, err
	}
	c.Spoke, c.SpokePostgres, err = Used(m.Spokes["attic"].Cmd.Process.Pid)
	return c, err
}

// Used returns the processor time of a process, and of the database servers that are its
// children with all their sessions, in milliseconds.
func Used(pid int) (own, postgres float64, err error) {
	if _, own, _, err = stat(pid); err != nil {
		return 0, 0, err
	}
	for _, child := range children(pid) {
		name, server, reaped, err := stat(child)
		if err != nil || name != "postgres" {
			continue // a shim
		}
		postgres += server + reaped
		for _, backend := range children(child) {
			if _, t, _, err := stat(backend); err == nil {
				postgres += t
			}
		}
	}
	return own, postgres, nil
}

// stat reads the name of a process, its processor time and that of its children who have
// ended, in milliseconds. Linux counts in hundredths of a second there; see proc_pid_stat(5).
func stat(pid int) (name string, own, reaped float64, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, 0, fmt.Errorf("reading the processor time of process %d: %w", pid, err)
	}
	before, after, _ := strings.Cut(string(raw), ") ")
	_, name, _ = strings.Cut(before, "(")
	fields := strings.Fields(after) // the third field of the line is the first here
	if len(fields) < 15 {
		return "", 0, 0, fmt.Errorf("reading the processor time of process %d: %q", pid, raw)
	}
	var t [4]float64 // utime, stime, cutime, cstime
	for i := range t {
		n, _ := strconv.ParseInt(fields[11+i], 10, 64)
		t[i] = float64(n) * 10
	}
	return name, t[0] + t[1], t[2] + t[3], nil
}
