package spoke

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// collected is an attempt that is live, and whose agent has ended.
func collected(t *testing.T) (*live, *run) {
	t.Helper()
	l, r := newLive(func() {}), &run{fence: backlog.Fence{Task: "t", Attempt: 1, Epoch: 5}}
	l.add(r)
	return &l, r
}

// A collection ends when its time is over, when this process stops, with a kill that comes meanwhile, and when the lease is lost without one.
func TestACollectionEnds(t *testing.T) {
	t.Parallel()
	killed := func(epoch int64) backlog.KillRun {
		return backlog.KillRun{Fence: backlog.Fence{Task: "t", Attempt: 1, Epoch: epoch}}
	}
	none := func(context.Context, string) (k backlog.KillRun, ok bool, err error) { return k, false, nil }
	pending := func(context.Context, string) (backlog.KillRun, bool, error) { return killed(6), true, nil }
	fault := func(context.Context, string) (k backlog.KillRun, ok bool, err error) {
		return k, false, errors.New("no database")
	}
	later := func() killFinder {
		first := true
		return func(context.Context, string) (backlog.KillRun, bool, error) {
			was := first
			first = false
			return killed(6), !was, nil
		}
	}
	for name, tt := range map[string]struct {
		find killFinder
		do   func(l *live, r *run)
		want error // nil = it goes on
	}{
		"this process stops": {none, func(l *live, _ *run) { l.abandon() }, errLeft},
		"a kill":             {none, func(l *live, _ *run) { l.kill(killed(6)) }, errKilled},
		"a kill after the one that ended the agent": {pending, func(l *live, _ *run) { l.kill(killed(6)); l.kill(killed(7)) }, errKilled},
		"the kill that ended the agent, once more":  {pending, func(l *live, r *run) { l.kill(killed(6)); l.lose(r) }, nil},
		"the lease is lost":                         {none, func(l *live, r *run) { l.lose(r) }, errLost},
		"a kill of which the lease alone tells":     {later(), func(l *live, r *run) { l.lose(r) }, errKilled},
		"nobody can say what ended the agent":       {fault, func(l *live, r *run) { l.kill(killed(6)); l.lose(r) }, nil},
	} {
		l, r := collected(t)
		ctx, stop := r.collecting(t.Context(), time.Hour, tt.find)
		tt.do(l, r)
		if tt.want == nil {
			require.Eventually(t, func() bool { return len(r.kills) == 0 }, 10*time.Second, time.Millisecond, name)
			time.Sleep(20 * time.Millisecond)
			require.NoError(t, ctx.Err(), name)
			stop()
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
		require.ErrorIs(t, context.Cause(ctx), tt.want, name)
		require.Equal(t, tt.want != errLeft, gaveUp(ctx) != nil, name)
		stop()
	}
	_, r := collected(t)
	ctx, stop := r.collecting(t.Context(), time.Millisecond, none)
	defer stop()
	<-ctx.Done()
	require.ErrorIs(t, gaveUp(ctx), errLate)
	require.Equal(t, "all of it: it could not be collected: collecting it took longer than 30m0s", withoutWork(gaveUp(ctx)))
}

// A program that collects what an agent has left is ended with the collection.
func TestAConfinedProgramEndsWithItsCollection(t *testing.T) {
	t.Parallel()
	s := confiner(t)
	r := s.over(t, commands.IsolationNone)
	r.kills, r.lost, r.turned = make(chan backlog.KillRun, 8), make(chan struct{}), wait.NewSignal()
	pidFile := filepath.Join(r.own().Temp, "pid")
	ctx, stop := r.collecting(t.Context(), time.Hour, func(context.Context, string) (k backlog.KillRun, ok bool, err error) { return k, false, nil })
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- s.runConfined(ctx, r, []string{"/bin/sh", "-c", `trap "" TERM; echo $$ >"$0.new"; mv "$0.new" "$0"; while :; do sleep 60; done`, pidFile}, time.Hour)
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(pidFile); return err == nil }, 20*time.Second, 10*time.Millisecond)
	text, err := os.ReadFile(pidFile)
	require.NoError(t, err)

	r.kills <- backlog.KillRun{Fence: backlog.Fence{Epoch: 1}}

	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoFileExists(t, filepath.Join("/proc", strings.TrimSpace(string(text)), "comm"))
}
