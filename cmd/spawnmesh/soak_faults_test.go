package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// injectFault lets one fault happen and ends it, except that a suspended connection
// may stay so for the next one. All of them happen, in an order by chance, before one happens again.
func (s *soak) injectFault() {
	s.t.Helper()
	if len(s.faults) == 0 {
		s.faults = []func(){s.cut, s.swallow, s.kill, s.kill, s.killDatabase, s.restart, s.freeze, s.backup, s.restore, s.restore, s.suspend, s.leave, s.flood, s.outage}
		s.rand.Shuffle(len(s.faults), func(i, j int) { s.faults[i], s.faults[j] = s.faults[j], s.faults[i] })
	}
	fault := s.faults[0]
	s.faults = s.faults[1:]
	fault()
	s.sleep(200*time.Millisecond, time.Second)
}

func (s *soak) cut() {
	l := s.link()
	s.say("the link of %s and %s is cut", l.spoke.Name, hubName(l.hub))
	l.proxy.Cut()
	s.sleep(time.Second, 4*time.Second)
	l.proxy.Heal()
}

// swallow loses what goes one way, or both, and tells nobody.
func (s *soak) swallow() {
	l := s.link()
	ways := [][]meshtest.Way{{meshtest.ToHub}, {meshtest.ToSpoke}, {meshtest.ToHub, meshtest.ToSpoke}}[s.rand.IntN(3)]
	s.say("between %s and %s bytes are lost, ways %v", l.spoke.Name, hubName(l.hub), ways)
	l.proxy.Swallow(ways...)
	s.sleep(time.Second, 4*time.Second)
	l.proxy.Heal()
}

func (s *soak) kill() {
	n := s.process()
	s.say("%s is killed", n.Name)
	n.Kill()
	s.sleep(0, 2*time.Second)
	require.NoError(s.t, n.Start(s.ctx))
}

// killDatabase kills the server of a node, which starts it again.
func (s *soak) killDatabase() {
	n := s.process()
	raw, _ := os.ReadFile(filepath.Join(n.Dir, "pg", "postmaster.pid"))
	line, _, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		return // it is just starting again
	}
	s.say("the database of %s is killed", n.Name)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

func (s *soak) restart() {
	n := s.process()
	s.say("%s is stopped and started", n.Name)
	s.stop(n)
	require.NoError(s.t, n.Start(s.ctx))
}

// stop stops a node in order. One whose database was just killed may say so.
func (s *soak) stop(n *fleet.Process) {
	if err := n.Stop(s.ctx); err != nil {
		s.say("%v", err)
		n.Kill()
	}
}

func (s *soak) freeze() {
	n := s.process()
	s.say("%s is frozen", n.Name)
	require.NoError(s.t, n.Cmd.Process.Signal(syscall.SIGSTOP))
	s.sleep(time.Second, 5*time.Second)
	require.NoError(s.t, n.Cmd.Process.Signal(syscall.SIGCONT))
}

func (s *soak) backup() {
	n := s.process()
	s.say("the database of %s is copied", n.Name)
	s.stop(n)
	s.copy(n, "pg", "backup")
	s.backups[n] = true
	require.NoError(s.t, n.Start(s.ctx))
}

// restore puts a copy in the place of a node's database, as after the loss of a
// disk.
func (s *soak) restore() {
	var copied []*fleet.Process
	for _, n := range s.processes() {
		if s.backups[n] {
			copied = append(copied, n)
		}
	}
	if len(copied) == 0 {
		s.backup()
		return
	}
	n := copied[s.rand.IntN(len(copied))]
	s.say("%s goes back to the copy of its database", n.Name)
	s.stop(n)
	s.copy(n, "backup", "pg")
	require.NoError(s.t, n.Start(s.ctx))
	if s.rand.IntN(2) == 0 {
		delete(s.backups, n)
	}
}

func (s *soak) copy(n *fleet.Process, from, to string) {
	to = filepath.Join(n.Dir, to)
	require.NoError(s.t, os.RemoveAll(to))
	out, err := exec.CommandContext(s.ctx, "cp", "-a", filepath.Join(n.Dir, from), to).CombinedOutput()
	require.NoError(s.t, err, "%s", out)
}

// suspend stops a connection on one side, for a while or until the end.
func (s *soak) suspend() {
	l := s.link()
	h, name := hand{t: s.t, dir: l.hub.Hub.Dir}, l.spoke.Name
	if s.rand.IntN(2) == 0 {
		h, name = hand{t: s.t, dir: l.spoke.Dir}, hubName(l.hub)
	}
	s.say("somebody in %s suspends %s", filepath.Base(h.dir), name)
	h.run("", "connections", "suspend", name, "--reason", "a pause")
	s.sleep(time.Second, 3*time.Second)
	if s.rand.IntN(3) > 0 {
		s.resume(l)
	}
}

// leave ends a connection for good, on one side, and makes a new one. Copies of the
// databases know nothing of that.
func (s *soak) leave() {
	l := s.link()
	s.say("%s leaves %s and joins it anew", l.spoke.Name, hubName(l.hub))
	s.rejoin(l)
}

func (s *soak) rejoin(l *soakLink) {
	s.t.Helper()
	l.proxy.Heal()
	hand{t: s.t, dir: l.hub.Hub.Dir}.run("", "connections", "revoke", l.spoke.Name, "--yes", "--reason", "joins anew")
	hand{t: s.t, dir: l.spoke.Dir}.run("", "connections", "revoke", hubName(l.hub), "--yes", "--reason", "joins anew")
	s.stop(l.spoke)
	s.join(l)
	require.NoError(s.t, l.spoke.Start(s.ctx))
	delete(s.backups, l.spoke)
	delete(s.backups, l.hub.Hub)
}

// flood sends a hub what is no message, and leaves half of it open.
func (s *soak) flood() {
	h := s.hubs[s.rand.IntN(len(s.hubs))]
	s.say("a flood of bad logins at %s", hubName(h))
	var open []net.Conn
	for i := range 100 {
		c, err := net.DialTimeout("tcp", h.Hub.Args[3], time.Second)
		if err != nil {
			continue
		}
		_, _ = c.Write([]byte(strings.Repeat("login ", i*20)))
		if open = append(open, c); i%2 == 0 {
			_ = c.Close()
		}
	}
	s.sleep(0, time.Second)
	for _, c := range open {
		_ = c.Close() // half of them were closed before
	}
}

// outage lets output wait for a link that is down.
func (s *soak) outage() {
	l := s.link()
	s.say("%d bytes of output wait for the link of %s and %s", s.output, l.spoke.Name, hubName(l.hub))
	var list []*soakOrder
	for range 4 {
		o := &soakOrder{id: newID(), link: l, argv: s.trace.chatter, bytes: s.output / 4}
		if s.place(o) == nil {
			list = append(list, o)
		}
	}
	for _, o := range list {
		_ = fleet.Poll(s.ctx, 10*time.Second, "", func() (bool, error) { // it may wait behind others, or for a suspended connection
			starts, _ := s.trace.counts(s.t)
			return starts[o.id] > 0, nil
		})
	}
	l.proxy.Cut()
	s.sleep(2*time.Second, 6*time.Second)
	l.proxy.Heal()
}
