package attack

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/internal/shortpath"
)

var onFiles = []Attack{
	{"list-data", "list the data directory", true, 1, func(t Targets) error { return list(t.Data) }},
	{"read-secret", "read a key", true, 1, func(t Targets) error { return read(filepath.Join(t.Data, "secret")) }},
	{"read-control-key", "read the key of the control socket", true, 1, func(t Targets) error { return read(filepath.Join(t.Data, "control.key")) }},
	{"read-policy", "read the policy", true, 1, func(t Targets) error { return read(filepath.Join(t.Data, "policy.yaml")) }},
	{"write-policy", "write the policy", true, 1, func(t Targets) error { return write(filepath.Join(t.Data, "policy.yaml")) }},
	{"replace-policy", "put another policy in its place", true, 1, func(t Targets) error {
		own := filepath.Join(ownDir(), "policy")
		return errors.Join(os.WriteFile(own, nil, 0o600), os.Rename(own, filepath.Join(t.Data, "policy.yaml")))
	}},
	{"make-file", "make a file in the data directory", true, 1, func(t Targets) error {
		return os.WriteFile(filepath.Join(t.Data, "made"), nil, 0o600)
	}},
	{"truncate-secret", "empty a key", true, 3, func(t Targets) error { return os.Truncate(filepath.Join(t.Data, "secret"), 6) }},
	{"remove-policy", "remove the policy", true, 1, func(t Targets) error { return os.Remove(filepath.Join(t.Data, "policy.yaml")) }},
	{"chmod-secret", "open a key to everybody", true, 0, func(t Targets) error { return os.Chmod(filepath.Join(t.Data, "secret"), 0o600) }},
	{"touch-secret", "change the times of a key", true, 0, func(t Targets) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(t.Data, "secret"), []unix.Timespec{{}, {}}, 0)
	}},
	{"link-secret", "make a hard link to a key and read it", true, 1, func(t Targets) error {
		own := filepath.Join(ownDir(), "hard")
		return errors.Join(os.Link(filepath.Join(t.Data, "secret"), own), read(own))
	}},
	{"follow-link", "read a key through a link of its own", true, 1, func(t Targets) error {
		own := filepath.Join(ownDir(), "soft")
		_ = os.Symlink(filepath.Join(t.Data, "secret"), own)
		return read(own)
	}},
	{"read-token", "read the token of another attempt", true, 1, func(t Targets) error { return read(filepath.Join(t.Other, "control", "spec.json")) }},
	{"forge-exit", "write the exit record of another attempt", true, 1, func(t Targets) error { return write(filepath.Join(t.Other, "control", "exit.json")) }},
	{"read-output", "read the output of another attempt", true, 1, func(t Targets) error { return read(filepath.Join(t.Other, "control", "stdout")) }},
	{"connect-shim", "connect to the shim of another attempt", true, 0, func(t Targets) error {
		return connect("unix", filepath.Join(t.Other, "control", "sock"))
	}},
	{"connect-control", "connect to the control socket of the spoke", true, 0, func(t Targets) error { return connect("unix", filepath.Join(t.Data, "control.sock")) }},
	{"read-home", "read the home of another agent", true, 1, func(t Targets) error { return list(filepath.Join(t.Other, "home")) }},
	{"write-home", "write to the home of another agent", true, 1, func(t Targets) error {
		return os.WriteFile(filepath.Join(t.Other, "home", "planted"), nil, 0o600)
	}},
	{"through-root", "reach the data directory through /proc of the spoke", true, 1, func(t Targets) error {
		return list(filepath.Join(proc(t.Daemon), "root", t.Data))
	}},
	{"write-etc", "write to /etc", true, 1, func(t Targets) error { return t.onHosts("/etc", create) }},
	{"write-programs", "write to /usr/local/bin", true, 1, func(t Targets) error { return t.onHosts("/usr/local/bin", create) }},
	{"write-run", "write to /run", true, 1, func(t Targets) error { return t.onHosts("/run", create) }},
	{"write-shared", "write to /tmp, where programs of others look", false, 1, func(t Targets) error { return t.onHosts("/tmp", create) }},
	{"write-memory", "write to /dev/shm", false, 1, func(t Targets) error { return t.onHosts("/dev/shm", create) }},
	{"read-shadow", "read the passwords of the host", true, needsRoot, func(Targets) error { return read("/etc/shadow") }},
	{"read-root-home", "list the home of root", false, 1, func(t Targets) error { return t.onHosts("/root", list) }},
	{"open-by-handle", "open a key by its number, around all directories", true, needsRoot, func(t Targets) error {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, filepath.Join(t.Data, "secret"), 0)
		if err != nil {
			return err
		}
		fd, err := unix.OpenByHandleAt(unix.AT_FDCWD, h, unix.O_RDONLY)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}},
	{"make-device", "make a device file of the disk", true, 1, func(Targets) error {
		return unix.Mknod(filepath.Join(ownDir(), "disk"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250)))
	}},
}

// ownDir is where the attacker may write.
func ownDir() string { return os.Getenv("TMPDIR") }

func proc(pid int) string { return "/proc/" + strconv.Itoa(pid) }

func list(dir string) error {
	_, err := os.ReadDir(dir)
	return err
}

func read(name string) error {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 1)); err != nil && err != io.EOF {
		return err
	}
	return nil
}

// write opens for writing and writes nothing.
func write(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// create makes a file and removes it.
func create(dir string) error {
	f, err := os.CreateTemp(dir, "spawnmesh-attack")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func connect(network, address string) error {
	if network == "unix" && address[0] == '/' {
		short, done, err := shortpath.Of(address)
		if err != nil {
			return err
		}
		defer done()
		address = short
	}
	c, err := net.Dial(network, address)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	return c.Close()
}
