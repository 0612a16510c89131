package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/git"
)

const ready = api.TaskResultResultStateReady

// A work is what an agent has left: its result, and the bundle that this names.
type work struct {
	api.TaskResult
	file *os.File // without a name, at its beginning
}

// onOrigin wants the work to be on the commit that the order says. Where there is none, it is the hub that says so.
func (w *work) onOrigin() error {
	if w.Bundle.Tip == "" || w.Bundle.Base == w.Origin {
		return nil
	}
	return commands.Refuse(commands.Conflict, "the order was for work on commit %q, and the result is work on %q; nothing was changed", commands.Clip(w.Origin), commands.Clip(w.Bundle.Base)).
		Hinting("do not take it; ask the host of the spoke")
}

// forGit is what it has to be: the commits that the result says, on the one that the order says.
func (w *work) forGit() git.Work {
	return git.Work{Bundle: w.file, Most: w.Bundle.Size, Branch: git.Branches + w.ID, Base: w.Origin, Tip: w.Bundle.Tip}
}

// get gets the bundle, with wait once the spoke has brought it.
func (w *work) get(ctx context.Context, c *control.Client, l *lasting, wait bool) error {
	for {
		body, err := c.Content(c.API().GetTaskWork(ctx, w.ID))
		switch {
		case err == nil:
			defer body.Close()
			return w.take(ctx, body, l)
		case commands.CodeOf(err) != commands.NoResult:
			return err
		case !wait:
			return commands.Refuse(commands.NoResult, "%s", refusal(err).Why).Hinting("to wait for it").Running("fetch", w.ShortID, "--wait")
		}
		l.now("waiting for the spoke to bring what the agent has left")
		select {
		case <-ctx.Done():
			return commands.Refuse(control.Interrupted, "interrupted; nothing was fetched")
		case <-time.After(time.Second):
		}
	}
}

// take writes the bundle into a file that is gone with this process, and compares it with what the spoke has signed.
func (w *work) take(ctx context.Context, body io.Reader, l *lasting) (err error) {
	if w.file, err = os.CreateTemp("", "spawnmesh-work-"); err != nil {
		return err
	}
	if err = os.Remove(w.file.Name()); err != nil {
		return err
	}
	from := &metered{from: io.LimitReader(body, w.Bundle.Size+1)}
	l.is(func() string { return "fetching, " + commands.SizeOf(from.n.Load(), w.Bundle.Size) })
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(w.file, sum), from)
	switch digest := "sha256-" + hex.EncodeToString(sum.Sum(nil)); {
	case ctx.Err() != nil:
		return commands.Refuse(control.Interrupted, "interrupted; nothing was fetched")
	case err != nil:
		return &commands.Refused{Code: commands.Unreachable, Why: "the bytes did not come to their end; nothing was fetched", Err: err, Hint: "type the line again"}
	case size != w.Bundle.Size || digest != w.Bundle.Digest:
		return notSigned(w, fmt.Sprintf("%s of %d bytes or more, in place of %s of %d", digest, size, w.Bundle.Digest, w.Bundle.Size))
	}
	_, err = w.file.Seek(0, io.SeekStart)
	return err
}
