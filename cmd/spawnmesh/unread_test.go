package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// fullPipe is a pipe that takes nothing more until it is read.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	fd := int(w.Fd()) // blocking from here on
	require.NoError(t, syscall.SetNonblock(fd, true))
	for _, part := range []string{strings.Repeat("-\n", 2048), "\n"} {
		for err = nil; err == nil; {
			_, err = syscall.Write(fd, []byte(part))
		}
		require.ErrorIs(t, err, syscall.EAGAIN)
	}
	require.NoError(t, syscall.SetNonblock(fd, false))
	return r, w
}

// startsInto starts an instance whose words go to w, and waits until it serves.
func startsInto(t *testing.T, n *fleet.Process, w *os.File) (exit chan error) {
	t.Helper()
	ready := filepath.Join(n.Dir, "ready")
	require.NoError(t, os.Remove(ready))
	c := n.Command(context.WithoutCancel(t.Context()), append(n.Args, "--log-level", "debug", "--ready-file", ready)...)
	c.Stdout, c.Stderr = w, w
	require.NoError(t, c.Start())
	exit = make(chan error, 1)
	ended := make(chan struct{})
	go func() { exit <- c.Wait(); close(ended) }()
	n.Cmd = c
	t.Cleanup(func() { // before the mesh is stopped, which does not know how this process ends
		_ = c.Process.Kill()
		<-ended
		n.Cmd = nil
	})
	require.NoError(t, fleet.Poll(t.Context(), fleet.StartTime, "waiting for "+n.Name, func() (bool, error) {
		_, err := os.Stat(ready)
		return err == nil, nil
	}))
	return exit
}

// Whatever becomes of who reads what an instance says, it works on, and it stops in order. Agents hear of a broken pipe as
// programs do.
func TestNobodyReadsWhatAnInstanceSays(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]bool{"nobody reads it": true, "who read it has gone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMesh(t)
			h := hand{t: t, dir: m.Hub.Dir}
			exits := map[*fleet.Process]chan error{}
			for _, n := range []*fleet.Process{m.Hub, m.Spokes["attic"]} {
				require.NoError(t, n.Stop(t.Context()))
				r, w := fullPipe(t)
				if !full {
					require.NoError(t, r.Close())
				}
				exits[n] = startsInto(t, n, w)
			}
			require.NoError(t, m.AwaitLink(t.Context(), "attic"))

			id := h.spawn("--spoke", "attic", "--", "grep", "SigIgn", "/proc/self/status")

			require.Equal(t, commands.Completed, h.ends(id).State)
			require.Regexp(t, `SigIgn:\t[0-9a-f]{12}[02468ace][0-9a-f]{3}\n`, h.do("logs", "-f", id), "SIGPIPE; others are those of who runs the test")
			for _, n := range []*fleet.Process{m.Spokes["attic"], m.Hub} {
				require.NoError(t, n.Cmd.Process.Signal(syscall.SIGTERM))
				select {
				case err := <-exits[n]:
					require.NoError(t, err, n.Name)
				case <-time.After(30 * time.Second):
					require.Fail(t, "it does not stop", n.Name)
				}
				n.Cmd = nil
			}
		})
	}
}

// Who reads slowly reads all that there is room for, and then how many lines are lost.
func TestWhatIsNotReadIsCounted(t *testing.T) {
	t.Parallel()
	r, w := fullPipe(t)
	require.NoError(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	u := newUnread(w)
	a := &app{err: u, unread: []*unread{u}}
	log := a.logger(0)
	a.tellLosses(log)
	const all = 4 * mostUnread / 100
	for n := range all {
		log.Info(strings.Repeat("x", 100), "n", n)
	}

	said := bytes.Buffer{}
	lines := bufio.NewScanner(r)
	for lines.Scan() && !strings.Contains(lines.Text(), "lost") {
		if strings.Contains(lines.Text(), " n=") {
			said.Write(append(lines.Bytes(), '\n'))
		}
	}

	kept := strings.Count(said.String(), "\n")
	require.Greater(t, kept, mostUnread/250)
	require.Less(t, kept, all)
	require.Regexp(t, `level=WARN msg="lines of this log are lost: nobody read it" lines=\d+$`, lines.Text())
	log.Info("the last one")
	go func() { u.end(); w.Close() }()
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Contains(t, string(rest), "the last one")
}

// A SIGQUIT ends an instance with where it was, and no agent: the next start adopts it.
func TestASIGQUITEndsNoAgent(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h, g := hand{t: t, dir: m.Hub.Dir}, newGate(t)
	id := h.spawn("--spoke", "attic", "--", "sh", "-c", g.wait())
	h.runs(id)
	for _, n := range []*fleet.Process{m.Spokes["attic"], m.Hub} {
		cmd := n.Cmd
		require.NoError(t, cmd.Process.Signal(syscall.SIGQUIT))
		n.Wait()
		require.Equal(t, 2, cmd.ProcessState.ExitCode())
		raw, err := os.ReadFile(filepath.Join(n.Dir, "log"))
		require.NoError(t, err)
		require.Contains(t, string(raw), "SIGQUIT: quit\n")
		require.NoError(t, n.Start(t.Context()))
	}

	g.open(t)

	v := h.ends(id)
	require.Equal(t, commands.Completed, v.State)
	require.Equal(t, 1, v.Attempt)
}
