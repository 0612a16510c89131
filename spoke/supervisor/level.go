package supervisor

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/confine"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// Level tries out how completely this host lets an agent be ended: "cgroup"
// when the kernel ends a whole cgroup at once, "tree" when the shim has to
// find the processes itself. The levels differ in what is left when a shim is
// itself killed; see the package comment. It starts and kills one process, so
// ask once. An error means that no agent can be supervised here.
func Level() (string, error) {
	k, err := Look()
	return k.Level, err
}

// Look is Level with what else the kernel of this host holds of an agent. Ask once, too.
func Look() (Kernel, error) {
	if _, err := tree.ReadProcess(os.Getpid()); err != nil {
		return Kernel{}, fmt.Errorf("looking for processes: is /proc mounted? %w", err)
	}
	self, err := findProcess(os.Getpid())
	if err != nil {
		return Kernel{}, fmt.Errorf("looking whether processes can be held on to: is the kernel older than 5.4? %w", err)
	}
	_ = self.Release()
	k := Kernel{Level: attempt.LevelCgroup}
	k.unheld, k.none = unheld()
	if err := probeCgroup(); err != nil {
		k.Level, k.why = attempt.LevelTree, err.Error()
	}
	return k, nil
}

// probeCgroup starts a process in a new cgroup and kills it through that.
func probeCgroup() error {
	group, _, err := tree.NewGroup(newMarker(), Limits{})
	if err != nil {
		return err
	}
	input, keep, err := os.Pipe()
	if err != nil {
		return errors.Join(err, group.Remove())
	}
	// The pipe ends the process should the kill not do it.
	defer keep.Close()
	defer input.Close()
	fd, err := group.Open()
	if err != nil {
		return errors.Join(err, group.Remove())
	}
	defer unix.Close(fd)
	p, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], attempt.ShimArg, attempt.ProbeArg}, &os.ProcAttr{
		Env:   []string{},
		Files: []*os.File{input},
		Sys:   &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd},
	})
	if err != nil {
		return errors.Join(err, group.Remove())
	}
	return errors.Join(probeKill(group, p), group.Remove())
}

func probeKill(group *tree.Group, p *os.Process) error {
	killed := group.Kill()
	rescue := time.AfterFunc(time.Second, func() { _ = p.Kill() })
	defer rescue.Stop()
	begin := time.Now()
	state, err := p.Wait()
	if err = errors.Join(killed, err); err != nil {
		return err
	}
	if status := state.Sys().(syscall.WaitStatus); !status.Signaled() || time.Since(begin) >= time.Second {
		return fmt.Errorf("the cgroup's process ended with %s and not by its kill", state)
	}
	return nil
}

// LandlockABI is the version of Landlock that the kernel has in force, 0 without it.
func LandlockABI() int { return confine.ABI() }

// RunningUsers are the users from first to last that live processes of this host have.
func RunningUsers(first, last int64) (map[int64]bool, error) { return tree.RunningUsers(first, last) }

// AnyUser is a user that a live process of this host has and of which is says so; 0 = there is none.
func AnyUser(is func(user int64) bool) (int64, error) { return tree.AnyUser(is) }

// EndUser ends whatever runs as a user of an agent's.
func EndUser(u User) error { return tree.EndUser(u) }

// ClearKeys empties the keyrings that the kernel keeps for a user of an agent's that is over.
func ClearKeys(u User) error { return tree.ClearKeys(u) }
