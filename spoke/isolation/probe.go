package isolation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/shortpath"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/isolation/attack"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// probeTime bounds one probe, also where a host is overloaded.
const probeTime = 30 * time.Second

// probe runs the attacker at a level, and says what got through that must not.
func (i *Isolation) probe(ctx context.Context, level string) error {
	if hasBubble(level) && i.bubble == "" {
		return errors.New("the program bwrap is not installed; it is in the package bubblewrap of most systems: install that (apt-get install bubblewrap, dnf install bubblewrap, apk add bubblewrap) and start the spoke again")
	}
	if hasLandlock(level) && supervisor.LandlockABI() == 0 {
		return errors.New("this kernel has no Landlock in force; it is Linux 5.13 or later with landlock in the boot parameter lsm")
	}
	got, err := i.Attack(ctx, level)
	if passes(err) {
		return fmt.Errorf("trying it out: %w; %w", err, errUntried)
	}
	if err != nil {
		if why := noNamespaces("/proc/sys"); hasBubble(level) && why != "" {
			err = fmt.Errorf("%w; %s and start the spoke again", err, why)
		}
		return fmt.Errorf("trying it out: %w", err)
	}
	var names []string
	for _, a := range attack.All() {
		if got[a.Name] && a.Holds(hasBubble(level), hasUser(level), abiOf(level)) {
			names = append(names, a.Name)
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("a program that tried it could %s", strings.Join(names, ", "))
	}
	return nil
}

// passes reports whether a probe met a fault of this host. A host that is too busy for it is one, too.
func passes(err error) bool {
	start, ok := errors.AsType[*supervisor.StartError](err)
	return hostfault.Is(err) || errors.Is(err, context.DeadlineExceeded) || ok && start.Reason.Passes()
}

func abiOf(level string) int {
	if !hasLandlock(level) {
		return 0
	}
	return supervisor.LandlockABI()
}

// probePrefix begins the name of a directory that one probe has for itself.
const probePrefix = "probe-"

// removeProbes removes what probes have left that a crash ended.
func (i *Isolation) removeProbes() {
	left, _ := filepath.Glob(filepath.Join(i.dir, probePrefix+"*")) // the pattern is well formed
	for _, dir := range left {
		_ = supervisor.RemoveAll(dir) // it costs room only, and the next start tries again
	}
}

// thisProgram can be executed by whoever may execute the file, also where its directory is
// closed to him.
const thisProgram = "/proc/self/exe"

// copyProgram makes a copy of this program that everybody may execute.
func copyProgram(to string) error {
	from, err := os.Open(thisProgram)
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Chmod(0o755), f.Close())
}

// Attack runs the attacker at a level against decoys, and returns which of its attacks got
// through.
func (i *Isolation) Attack(ctx context.Context, level string) (map[string]bool, error) {
	root, err := os.MkdirTemp(i.dir, probePrefix)
	if err != nil {
		return nil, err
	}
	defer supervisor.RemoveAll(root)
	if err := os.Chmod(root, 0o711); err != nil {
		return nil, err
	}
	targets, release, err := i.decoys(level, filepath.Join(root, "data"))
	if err != nil {
		return nil, err
	}
	defer release()
	return i.attack(ctx, level, filepath.Join(root, "attempt"), targets)
}

// attack runs the attacker as an agent with directories of its own.
func (i *Isolation) attack(ctx context.Context, level, dir string, targets attack.Targets) (map[string]bool, error) {
	d := Dirs{Work: filepath.Join(dir, "work"), Temp: filepath.Join(dir, "tmp"), Home: filepath.Join(dir, "home")}
	if err := MakeDirs(level, dir, d); err != nil {
		return nil, err
	}
	program, reach := thisProgram, Reach{Read: []string{thisProgram}}
	if hasBubble(level) { // where that would be bubblewrap
		targets.Bubble, program, reach.Read = true, filepath.Join(d.Work, "attacker"), nil
		if err := copyProgram(program); err != nil {
			return nil, err
		}
	}
	c, err := supervisor.Confine{}, error(nil)
	if level != commands.IsolationNone {
		if c, err = i.take(level, d, reach); err != nil {
			return nil, err
		}
		defer i.Release(c.User, d)
	}
	aim, err := json.Marshal(targets)
	if err != nil {
		return nil, err
	}
	starting, done := context.WithTimeout(ctx, probeTime)
	defer done()
	control := filepath.Join(dir, "control")
	agent, err := supervisor.Start(starting, control, supervisor.Spec{
		Argv: []string{program, attack.Arg, string(aim)}, Env: []string{"TMPDIR=" + d.Temp, "HOME=" + d.Home, "GORACE=atexit_sleep_ms=0"}, Dir: d.Work, Timeout: probeTime, Confine: i.grants(c),
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-agent.Done():
	case <-ctx.Done(): // a stop waits for no attacker
		return nil, errors.Join(ctx.Err(), agent.Kill(context.WithoutCancel(ctx), "its spoke stops", 0), agent.Close())
	}
	exit := agent.Exit()
	if err := agent.Close(); err != nil {
		return nil, err
	}
	if exit.Outcome != supervisor.Exited || exit.Code != 0 {
		return nil, fmt.Errorf("the program that tries it ended with %s, code %d %s: %q", exit.Outcome, exit.Code, exit.Signal, firstLine(filepath.Join(control, string(supervisor.Stderr))))
	}
	report, err := os.Open(filepath.Join(control, string(supervisor.Stdout)))
	if err != nil {
		return nil, err
	}
	defer report.Close()
	return attack.Read(report)
}

// firstLine is what a program has said first, at most.
func firstLine(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	raw, _ := io.ReadAll(io.LimitReader(f, 300)) // what there is
	line, _, _ := strings.Cut(string(raw), "\n")
	return line
}

// decoys makes what the attacker is aimed at: a data directory with another attempt in it, and
// what a spoke listens on.
func (i *Isolation) decoys(level, data string) (attack.Targets, func(), error) {
	t := attack.Targets{Known: attack.Look(os.Getpid()), Data: data, Other: filepath.Join(data, "agents", "task", "1"), Daemon: os.Getpid(), Abstract: filepath.Base(filepath.Dir(data)) + "-abstract", Shared: -1}
	var closers []func()
	release := func() {
		for _, c := range slices.Backward(closers) {
			c()
		}
	}
	home := filepath.Join(t.Other, "home")
	control := filepath.Join(t.Other, "control")
	err := errors.Join(os.MkdirAll(home, 0o711), os.MkdirAll(control, 0o700))
	for _, name := range []string{filepath.Join(data, "secret"), filepath.Join(data, "control.key"), filepath.Join(data, "policy.yaml"), filepath.Join(control, "spec.json"), filepath.Join(control, "exit.json"), filepath.Join(control, "stdout")} {
		err = errors.Join(err, os.WriteFile(name, []byte("secret"), 0o600))
	}
	err = errors.Join(err, os.Chmod(home, 0o700))
	if hasUser(level) {
		id, taken := i.users.take()
		if err = errors.Join(err, taken); err == nil {
			closers = append(closers, func() { i.users.release(id) })
			err = os.Lchown(home, int(id), int(id))
		}
	}
	for _, name := range []string{filepath.Join(control, "sock"), filepath.Join(data, "control.sock"), "@" + t.Abstract} {
		l, listening := listen(name)
		if err = errors.Join(err, listening); listening == nil {
			closers = append(closers, func() { _ = l.Close() })
		}
	}
	l, listening := listenTCP()
	if err = errors.Join(err, listening); listening == nil {
		closers = append(closers, func() { _ = l.Close() })
		t.Loopback = l.Addr().String()
	}
	if master, name, opened := openTerminal(); opened == nil {
		t.Terminal = name
		closers = append(closers, func() { _ = master.Close() })
	}
	if id, shared := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600); shared == nil {
		t.Shared = id
		closers = append(closers, func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	}
	if err != nil {
		release()
		return t, nil, err
	}
	return t, release, nil
}

// listenTCP listens on the loopback of a host that may have one of the two protocols alone.
func listenTCP() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l, err = net.Listen("tcp", "[::1]:0")
	}
	return l, err
}

// openTerminal makes a terminal, which is there as long as the master is open.
func openTerminal() (master *os.File, name string, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		return nil, "", errors.Join(err, master.Close())
	}
	return master, fmt.Sprintf("/dev/pts/%d", n), nil
}

// listen makes a socket for the spoke's user alone; its file goes with its directory.
func listen(name string) (net.Listener, error) {
	if name[0] == '@' {
		return net.Listen("unix", name)
	}
	short, done, err := shortpath.Of(name)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.Listen("unix", short)
	if err == nil {
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		err = os.Chmod(name, 0o600)
	}
	return l, err
}
