package isolation

import (
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// systemDirs are what every agent may read and execute, where its user may.
var systemDirs = []string{
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/opt", "/etc", "/nix", "/gnu", "/snap", "/proc", "/sys",
	"/run/systemd/resolve", "/run/resolvconf", "/var/lib/ca-certificates",
}

// devices are what every agent may use.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"}

// A Reach is what an agent reaches beside its own directories and those of the system.
type Reach struct {
	Read, Write []string // absolute paths; one that is not there is left out
	AnyPort     bool
	Ports       []int64 // TCP ports that it may connect to, unless AnyPort is set
}

// System lists the directories that every agent may read.
func System() []string { return systemDirs }

// confine returns what keeps an agent at a level to its reach.
func confine(level string, user supervisor.User, own []string, r Reach) supervisor.Confine {
	c := supervisor.Confine{User: user}
	if !hasLandlock(level) {
		return c
	}
	c.Landlock, c.AnyPort, c.Ports = true, r.AnyPort, r.Ports
	c.Read = append(append(c.Read, systemDirs...), r.Read...)
	c.Write = append(append(append(c.Write, devices...), own...), r.Write...)
	for i, path := range c.Write {
		c.Write[i] = filepath.Clean(path)
	}
	return c
}
