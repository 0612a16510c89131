package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

func (a *app) showLogs(ctx context.Context, id string, f logFlags) error {
	var v agentView
	var err error
	err = a.withReader(ctx, func(ctx context.Context, c *control.Client) error {
		v, err = agentNamed(ctx, c, id)
		return err
	})
	if err != nil {
		return err
	}
	c, err := a.client()
	if err == nil {
		err = f.check(a, v)
	}
	switch {
	case err != nil:
		return err
	case v.Hub != "":
		if err := a.onHost(); err != nil {
			return err // its output is in files
		}
		err := a.hostLogs(ctx, c, v, f)
		if err == nil && a.forPeople() && v.State.Terminal() && v.StartedAt == nil {
			fmt.Fprintln(a.err, printable(whyNoOutput(v.AgentView)))
		}
		return err
	case f.follow:
		_, err = a.followLogs(ctx, c, id, f)
		return err
	}
	return a.logs(ctx, c, id, f)
}

// A hostPiece is a part of what an agent of this host wrote.
type hostPiece struct {
	Seq     int64  `json:"seq"`
	Attempt int    `json:"attempt"`
	Stream  string `json:"stream"`
	Offset  int64  `json:"offset"`
	Data    []byte `json:"data"`
}

// A hostLog shows what an agent of this host has written, from its files.
type hostLog struct {
	a      *app
	c      *control.Client // of the spoke, which may not run
	v      agentView
	follow bool
	view   logView
	seq    int64
	pieces []hostPiece // shown at the end, to a program that wants one value
}

func (a *app) hostLogs(ctx context.Context, c *control.Client, v agentView, f logFlags) error {
	l := &hostLog{a: a, c: c, v: v, follow: f.follow, view: logView{a: a, last: f.last}, pieces: []hostPiece{}}
	for n := max(f.attempt, 1); ; n++ {
		if err := l.attempt(ctx, n); err != nil {
			return err
		}
		if f.attempt > 0 || n >= l.v.Attempt && !l.awaits(ctx, n) {
			break
		}
	}
	if a.output == "json" && !f.follow {
		return a.printJSON(l.pieces)
	}
	return l.view.flush()
}

// attempt shows one attempt: to its end, where that is awaited.
func (l *hostLog) attempt(ctx context.Context, n int) error {
	dir := spoke.ControlDir(filepath.Join(l.v.Dir, strconv.Itoa(n)))
	at := map[supervisor.Stream]int64{}
	for {
		over := l.over(ctx, n) // asked first: what is read after it is all
		ended := true
		for _, stream := range []supervisor.Stream{supervisor.Stdout, supervisor.Stderr} {
			end, err := l.show(dir, n, stream, at)
			if err != nil {
				return err
			}
			ended = ended && end
		}
		if l.follow && n >= l.v.Attempt { // this was there
			if err := l.view.flush(); err != nil {
				return err
			}
		}
		if ended || over || !l.follow || !sleep(ctx, 100*time.Millisecond) {
			return nil
		}
	}
}

// show writes what is new of a stream, and reports whether nothing follows.
func (l *hostLog) show(dir string, n int, stream supervisor.Stream, at map[supervisor.Stream]int64) (ended bool, err error) {
	for {
		p, err := supervisor.Read(dir, stream, at[stream], 32<<10, math.MaxInt64)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil // it has not begun, or was removed
		}
		if err != nil || len(p.Data) == 0 {
			return p.Ended, err
		}
		l.seq++
		piece := hostPiece{Seq: l.seq, Attempt: n, Stream: string(stream), Offset: at[stream], Data: p.Data}
		at[stream] += int64(len(p.Data))
		switch {
		case !l.a.wantsJSON():
			err = l.view.output(n, piece.Stream, piece.Data)
		case l.a.output == "json" && !l.follow:
			l.pieces = append(l.pieces, piece)
		default:
			err = l.a.printLine(piece)
		}
		if err != nil {
			return false, err
		}
	}
}

// look asks for the agent as it is now; without an answer what is known of it stays.
func (l *hostLog) look(ctx context.Context) error {
	v, err := agentNamed(ctx, l.c, l.v.Task)
	if err == nil {
		l.v = v
	}
	return err
}

// over reports whether attempt n is not the last one, or nobody goes on with it.
// What a spoke that does not run has left to a shim goes on by itself.
func (l *hostLog) over(ctx context.Context, n int) bool {
	err := l.look(ctx)
	if commands.CodeOf(err) == commands.Unreachable {
		_, err := supervisor.Read(spoke.ControlDir(filepath.Join(l.v.Dir, strconv.Itoa(n))), supervisor.Stdout, 0, 1, 0)
		return err != nil
	}
	return err != nil || l.v.Attempt > n || l.v.State.Terminal()
}

// awaits waits for an attempt after n, and reports whether there is one.
func (l *hostLog) awaits(ctx context.Context, n int) bool {
	for l.follow && !l.v.State.Terminal() {
		err := l.look(ctx)
		if err == nil && l.v.Attempt > n {
			return true
		}
		if err != nil || !sleep(ctx, 100*time.Millisecond) {
			return false
		}
	}
	return false
}

// sleep reports whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
