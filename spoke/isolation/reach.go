package isolation

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// systemDirs are what every agent may read and execute, where its user may.
var systemDirs = []string{
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/opt", "/etc", "/nix", "/gnu", "/snap", "/proc", "/sys",
	"/run/systemd/resolve", "/run/resolvconf", "/var/lib/ca-certificates",
}

// devices are what every agent may use.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// sharedMemory, as terminals, is given to agents with a user of their own only. It is where programs make POSIX semaphores and shared memory, which is those of
// their user. Without a user of its own an agent could change the memory of the database there, and
// read what its host types.
const sharedMemory = "/dev/shm"

// A Reach is what an agent reaches beside its own directories and those of the system.
type Reach struct {
	Read, Write []string          // absolute paths without symbolic links; one that is not there is left out
	Dir         string            // the agent's working directory, where it is none of its own; "" = it is
	Program     string            // a file that the agent executes; "" = it is one of those above
	Names       map[string]string // another name of one, by links that a bubble does not have
	AnyPort     bool
	Ports       []int64 // TCP ports that it may connect to, unless AnyPort is set
}

// System lists the directories that every agent may read.
func System() []string { return systemDirs }

// real returns the paths that are there, without symbolic links. An error is a fault of this host.
func real(paths []string) (list []string, err error) {
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if hostfault.Is(err) {
			return nil, fmt.Errorf("looking what an agent may reach: %w", err)
		}
		if err == nil && !slices.Contains(list, real) {
			list = append(list, real)
		}
	}
	return list, nil
}

// confine returns what keeps an agent at a level to its reach.
func (i *Isolation) confine(level string, user supervisor.User, own Dirs, r Reach) (supervisor.Confine, error) {
	c := supervisor.Confine{User: user}
	if hasBubble(level) {
		c.Wrap = i.wrap(own, r)
	}
	if !hasLandlock(level) {
		return c, nil
	}
	c.Landlock, c.AnyPort, c.Ports = true, r.AnyPort, r.Ports
	write := slices.Concat(devices, own.list())
	if hasUser(level) {
		write = append(write, sharedMemory, "/dev/ptmx", "/dev/pts")
	}
	reads, err := real(append(own.door(), systemDirs...))
	if err == nil {
		write, err = real(write)
	}
	if err != nil {
		return supervisor.Confine{}, err
	}
	c.Read, c.Write = append(reads, r.Read...), append(write, r.Write...)
	if r.Dir != "" {
		c.Write = append(c.Write, supervisor.OpenedDir)
	}
	if r.Program != "" {
		c.Read = append(c.Read, supervisor.OpenedProgram)
	}
	return c, nil
}
