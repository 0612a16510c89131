package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// sendInputs sends what the order names as inputs, before it is given.
func (a *app) sendInputs(ctx context.Context, c *control.Client, f *spawnFlags) error {
	l := a.lasting("reading what is sent")
	list, err := f.pack(ctx, l.now)
	l.done()
	defer func() {
		for _, p := range list {
			p.close()
		}
	}()
	if err != nil || len(list) == 0 {
		return err
	}
	for _, p := range list {
		f.req.Spawn.Inputs = append(f.req.Spawn.Inputs, p.Input)
	}
	f.req.Spawn.Task = f.req.ID
	if err := f.req.Check(); err != nil { // else all is sent for nothing
		return err
	}
	sent := map[string]bool{}
	for _, p := range list {
		for _, n := range p.notes {
			fmt.Fprintln(a.err, "note:", printable(n))
		}
		if a.forPeople() {
			fmt.Fprintln(a.err, printable(p.String()))
		}
		if sent[p.Digest] {
			continue
		}
		if err := a.sendInput(ctx, c, p); err != nil {
			return err
		}
		sent[p.Digest] = true
	}
	return nil
}

func (a *app) sendInput(ctx context.Context, c *control.Client, p parcel) error {
	body := &metered{from: p.file}
	l := a.lasting("")
	l.is(func() string { return "sending " + p.named + " to the hub, " + commands.SizeOf(body.n.Load(), p.Size) })
	length := func(_ context.Context, r *http.Request) error {
		r.ContentLength = p.Size
		return nil
	}
	got, err := control.Answer(c.API().PutBlobWithBodyWithResponse(ctx, "application/octet-stream", body, length))
	l.done()
	switch {
	case err != nil:
		return notSent(ctx, p, err)
	case got != api.Blob{Digest: p.Digest, Size: p.Size}:
		return commands.Refuse(commands.Conflict, "%s changed while it was sent: it was %s, and is %s; nothing was ordered", p.named, p.Digest, got.Digest).Hinting("type the line again")
	}
	return nil
}

// notSent says what it means for the order that the hub did not take its input.
func notSent(ctx context.Context, p parcel, err error) error {
	r := refusal(err)
	switch {
	case ctx.Err() != nil:
		return commands.Refuse(control.Interrupted, "interrupted while %s was sent; nothing was ordered", p.named)
	case r.Code == commands.NotFound || r.Code == commands.MethodNotAllowed || r.Code == commands.UnsupportedMedia:
		return commands.Refuse(commands.Capability, "sending %s: this hub is of a version that takes no inputs; nothing was ordered", p.named).
			Hinting("have its operator install a newer one; files up to 96 KiB come with the order: --file")
	}
	return &commands.Refused{Code: r.Code, Why: "sending " + p.named + ": " + r.Why + "; nothing was ordered", Hint: r.Hint, Run: r.Run}
}

// metered counts what is read. It leaves the file open: that is another's.
type metered struct {
	from io.Reader
	n    atomic.Int64
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.from.Read(b)
	m.n.Add(int64(n))
	return n, err
}
