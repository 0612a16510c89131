package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/bench/record"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// FollowOptions say how a hub is measured that programs follow.
type FollowOptions struct {
	Clients []int         // numbers of them, ascending
	Rate    int           // requests a second, of which every fifth orders an agent
	Hooks   int           // webhooks that are told of the same events
	Window  time.Duration // how long they are made
	Say     func(format string, args ...any)
}

// A Followed is a hub while so many follow its events: latencies in ms, memory in KiB.
type Followed struct {
	Clients   int     `json:"clients"`
	Requests  int     `json:"requests"`
	P50       float64 `json:"request_p50_ms"`
	P99       float64 `json:"request_p99_ms"`
	Events    int     `json:"events"`       // that the one has had who had fewest
	Made      int64   `json:"made"`         // changes that there were for them
	Seconds   float64 `json:"seconds"`      // until they were counted
	EventP50  float64 `json:"event_p50_ms"` // from the change until one of them has it
	EventP99  float64 `json:"event_p99_ms"`
	Told      int     `json:"deliveries"`      // to each webhook
	HookP50   float64 `json:"delivery_p50_ms"` // from the change until it is delivered
	HookP99   float64 `json:"delivery_p99_ms"`
	RSS       int64   `json:"rss_kib"`
	PerClient float64 `json:"rss_kib_per_client"` // more than with the fewest
	CPU       float64 `json:"cpu_percent"`        // of one core, without its database
}

// Follows is a whole run.
type Follows struct {
	record.Origin
	Rate   int        `json:"requests_per_s"`
	Hooks  int        `json:"webhooks"`
	Window float64    `json:"window_s"`
	List   []Followed `json:"followed"`
}

// MeasureFollowed measures requests to a hub beside those who follow its events.
func MeasureFollowed(ctx context.Context, o FollowOptions) (found Follows, err error) {
	if len(o.Clients) == 0 || o.Clients[0] < 0 || !slices.IsSorted(o.Clients) || o.Rate < 1 || o.Hooks < 0 || o.Window < time.Second {
		return found, errors.New("numbers of clients ascend, the rate is at least 1, no number is below 0, and the window is at least 1s")
	}
	found = Follows{Origin: record.Here(), Rate: o.Rate, Hooks: o.Hooks, Window: o.Window.Seconds()}
	hooks, err := receive()
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, hooks.close()) }()
	m, err := open(ctx, 64, "--webhook-allow", "127.0.0.0/8", "--webhook-ca", hooks.ca())
	if m != nil {
		defer func() { err = errors.Join(err, m.Stop(ctx)) }()
	}
	if err != nil {
		return found, err
	}
	if _, err := measure(ctx, m, 4, 40, commands.RuntimeNoop); err != nil { // warm up
		return found, err
	}
	if err := hooks.create(ctx, m, o.Hooks); err != nil {
		return found, err
	}
	for i, n := range o.Clients {
		if i > 0 {
			o.Say("waiting for the deliveries that are left ...")
			if err := hooks.drained(ctx); err != nil {
				return found, err
			}
		}
		o.Say("%d clients, %d requests a second for %s ...", n, o.Rate, o.Window)
		f, err := o.followed(ctx, m, hooks, n)
		if err != nil {
			return found, err
		}
		found.List = append(found.List, f)
	}
	for i := range found.List[1:] {
		f, first := &found.List[i+1], found.List[0]
		f.PerClient = float64(f.RSS-first.RSS) / float64(max(f.Clients-first.Clients, 1))
	}
	return found, nil
}

// followed measures the hub while n follow it.
func (o FollowOptions) followed(ctx context.Context, m *fleet.Mesh, hooks *receiver, n int) (f Followed, err error) {
	following, stop := context.WithCancel(ctx)
	defer stop()
	r := &readers{mesh: m}
	var g errgroup.Group
	g.Go(func() error { return r.follow(following, n) })
	defer func() { stop(); err = errors.Join(err, g.Wait()) }()
	if err := fleet.Poll(ctx, time.Minute, "waiting for the clients", func() (bool, error) { return r.connected() == n, nil }); err != nil {
		return f, err
	}
	pid := m.Hub.Cmd.Process.Pid
	before, _, err := Used(pid)
	if err != nil {
		return f, err
	}
	hooks.taken()
	at, err := position(ctx, m)
	if err != nil {
		return f, err
	}
	began := time.Now()
	took, err := o.ask(ctx, m)
	if err != nil {
		return f, err
	}
	after, _, err := Used(pid)
	if err != nil {
		return f, err
	}
	f = Followed{Clients: n, Requests: len(took), CPU: (after - before) / o.Window.Seconds() / 10}
	f.P50, f.P99 = quantile(took, 0.5), quantile(took, 0.99)
	if err := wait.For(ctx, time.Second); err != nil { // for what is under way
		return f, err
	}
	told, late := hooks.taken()
	f.Told, f.HookP50, f.HookP99 = told/max(o.Hooks, 1), quantile(late, 0.5), quantile(late, 0.99)
	f.Seconds = time.Since(began).Seconds()
	f.Events, f.EventP50, f.EventP99 = r.had()
	now, err := position(ctx, m)
	if err != nil {
		return f, err
	}
	f.Made = now - at
	f.RSS, _, err = memory(pid, false)
	return f, err
}

// ask makes requests at the rate, each without waiting for those before, and returns how long each took.
func (o FollowOptions) ask(ctx context.Context, m *fleet.Mesh) (took []float64, err error) {
	var mu sync.Mutex // guards took
	var g errgroup.Group
	tick := time.NewTicker(time.Second / time.Duration(o.Rate))
	defer tick.Stop()
	for i := range int(o.Window.Seconds() * float64(o.Rate)) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		g.Go(func() error {
			began := time.Now()
			err := request(ctx, m.Ctl, i)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, ms(time.Since(began)))
			return err
		})
	}
	return took, g.Wait()
}

// request is the i-th one: an order, or a list.
func request(ctx context.Context, c *control.Client, i int) error {
	if i%5 == 0 {
		var a hub.SpawnAnswer
		r := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}}
		return c.Do(ctx, "POST", "/api/v1/tasks", r.Revealed(), &a)
	}
	var list control.Items[json.RawMessage]
	return c.Do(ctx, "GET", "/api/v1/tasks?limit=20", nil, &list)
}

// events are followed by programs from what comes next.
const events = "/api/v1/events?follow=true"

// position is the number of the last event of a hub.
func position(ctx context.Context, m *fleet.Mesh) (at int64, err error) {
	read := errors.New("read")
	err = control.NewClient(m.Hub.Dir).Follow(ctx, events, func(raw json.RawMessage) error {
		var l api.EventLine
		if err := json.Unmarshal(raw, &l); err != nil {
			return err
		}
		at = *l.Position
		return read
	})
	if !errors.Is(err, read) {
		return 0, fmt.Errorf("asking for the last event: %w", err)
	}
	return at, nil
}

// readers follow the events of a hub.
type readers struct {
	mesh *fleet.Mesh

	mu     sync.Mutex // guards the rest
	there  int
	events []int     // that each has had
	late   []float64 // of some of them, ms
}

func (r *readers) follow(ctx context.Context, n int) error {
	var g errgroup.Group
	r.events = make([]int, n)
	for i := range n {
		g.Go(func() error {
			first := true
			err := control.NewClient(r.mesh.Hub.Dir).Follow(ctx, events, func(raw json.RawMessage) error {
				defer func() { first = false }()
				return r.take(raw, i, first)
			})
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("client %d: %w", i, err)
		})
	}
	return g.Wait()
}

// take takes one line of client i. Only of some clients it is read: this process has the same two cores.
func (r *readers) take(raw json.RawMessage, i int, first bool) error {
	var l api.EventLine
	read := i%100 == 0
	if read {
		if err := json.Unmarshal(raw, &l); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if first {
		r.there++
		return nil
	}
	if r.events[i]++; read {
		r.late = append(r.late, ms(time.Since(l.Event.At)))
	}
	return nil
}

// had is how many events the client has had that had fewest, and how late they came, the median and the 99th percentile.
func (r *readers) had() (fewest int, p50, p99 float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) > 0 {
		fewest = slices.Min(r.events)
	}
	return fewest, quantile(r.late, 0.5), quantile(r.late, 0.99)
}

func (r *readers) connected() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.there
}
