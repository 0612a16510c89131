package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/bench"
	"github.com/spawnmesh/spawnmesh/internal/bench/record"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// A history is what orders cost at a hub where so many have ended; times are milliseconds.
type history struct {
	Ended    int     `json:"ended"`
	InFlight int     `json:"in_flight"`
	Orders   int     `json:"orders"`
	P50      float64 `json:"p50_ms"` // from the request to the answer that it is stored
	P99      float64 `json:"p99_ms"`
	CPU      float64 `json:"processor_time_ms"` // of one order, hub and database

	mesh  *fleet.Mesh
	times []float64
	cpu   float64
}

// An acceptResult is a whole run.
type acceptResult struct {
	record.Origin
	Histories []*history `json:"histories"`
	Ratio     float64    `json:"p50_ratio"` // long to short, one order at a time
	CPURatio  float64    `json:"processor_time_ratio"`
	Many      float64    `json:"processor_time_ratio_many"` // the same, manyOrders at a time
}

const (
	shortHistory = 1000
	manyOrders   = 64 // at a time
	block        = 50 // orders at one hub, before it is the other's turn
)

// accept measures what an order costs at two hubs that differ in their history alone. Their
// spoke is away: an order is stored and answered, and nothing follows it.
func accept(ctx context.Context, o options) (err error) {
	r := acceptResult{Origin: record.Here()}
	var meshes []*fleet.Mesh
	for _, ended := range []int{shortHistory, o.history} {
		m, err := hubWithHistory(ctx, o.bin, ended, 0)
		if m != nil {
			defer func() { _ = m.Stop(context.WithoutCancel(ctx)) }()
		}
		if err != nil {
			return err
		}
		meshes = append(meshes, m)
	}
	for _, n := range []int{1, manyOrders} {
		pair := []*history{{Ended: shortHistory, InFlight: n, mesh: meshes[0]}, {Ended: o.history, InFlight: n, mesh: meshes[1]}}
		if err := takeTurns(ctx, pair, o.count); err != nil {
			return err
		}
		r.Histories = append(r.Histories, pair...)
	}
	h := r.Histories
	r.Ratio, r.CPURatio, r.Many = h[1].P50/h[0].P50, h[1].CPU/h[0].CPU, h[3].CPU/h[2].CPU
	for _, f := range h {
		fmt.Printf("%9d ended, %2d in flight: an order %.2f ms (p99 %.2f), processor time %.2f ms\n", f.Ended, f.InFlight, f.P50, f.P99, f.CPU)
	}
	fmt.Printf("long to short history: p50 %.2f (target: at most 1.1), processor time %.2f, %d at a time %.2f\n", r.Ratio, r.CPURatio, manyOrders, r.Many)
	return record.Write(o.json, r)
}

// hubWithHistory runs a hub that a spoke has joined, and writes into its database what so many
// orders have left behind, and what so many agents that run stand for. The spoke is away.
func hubWithHistory(ctx context.Context, bin string, ended, running int) (*fleet.Mesh, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	m, err := fleet.New(ctx, bin, "accept")
	if err != nil {
		return m, err
	}
	if err := m.AddSpoke(ctx, "attic", policy.Presets["open"]); err != nil {
		return m, err
	}
	if err := m.Spokes["attic"].Stop(ctx); err != nil {
		return m, err
	}
	began := time.Now()
	guest, err := postgres.Visit(ctx, m.Hub.Dir)
	if err != nil {
		return m, err
	}
	conn, err := pgx.Connect(ctx, guest.URL())
	if err != nil {
		return m, errors.Join(fmt.Errorf("connecting to the hub's database: %w", err), guest.Close())
	}
	// The owner of the tables does not see their rows, and nobody but it may vacuum them.
	for _, sql := range []string{`SET ROLE spawnmesh_engine`, fmt.Sprintf(endedMirrors, ended), fmt.Sprintf(openMirrors, ended+1, ended+running), endedOrders, confirmed, lastNumber, `RESET ROLE`, `VACUUM ANALYZE`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return m, errors.Join(fmt.Errorf("%s: %w", sql, err), conn.Close(ctx), guest.Close())
		}
	}
	fmt.Fprintf(os.Stderr, "%d ended, %d running: filled in %s\n", ended, running, time.Since(began).Round(time.Second))
	if err := errors.Join(conn.Close(ctx), guest.Close()); err != nil {
		return m, err
	}
	// Its server ends with a checkpoint, which would else fall into what is measured.
	return m, errors.Join(m.Hub.Stop(ctx), m.Hub.Start(ctx))
}

// What orders leave at a hub that have ended.
const (
	endedMirrors = `INSERT INTO mirrors (task, conn, title, state, command, command_digest, idempotency_key, request_digest, created_by, spec, expires_at, accepted_at, started_at, ended_at)
		SELECT x.id, c.id, 'agent', 'completed', x.id, '', 'key-' || x.id, '', 'bench', '{}', now() + interval '1 day', now(), now(), now()
		FROM (SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id FROM generate_series(1, %d) AS n) AS x, connections c`
	openMirrors = `INSERT INTO mirrors (task, conn, title, state, command, command_digest, idempotency_key, request_digest, created_by, spec, labels, expires_at, accepted_at, started_at)
		SELECT x.id, c.id, 'agent', 'running', x.id, '', 'key-' || x.id, '', 'bench', '{}', jsonb_build_object('team', 'red'), now() + interval '1 day', now(), now()
		FROM (SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id FROM generate_series(%d, %d) AS n) AS x, connections c`
	endedOrders = `INSERT INTO outbox (id, conn, seq, queue, kind, digest, task, exp, envelope)
		SELECT task, m.conn, s.last + row_number() OVER (ORDER BY task), 'run', 'agent.spawn', '', task, now() + interval '1 day', 'x' FROM mirrors m JOIN sequences s USING (conn)`
	confirmed  = `UPDATE confirmed c SET numbers = int8multirange(int8range(1, (SELECT max(seq) + 1 FROM outbox o WHERE o.conn = c.conn)))`
	lastNumber = `UPDATE sequences s SET last = greatest(last, (SELECT max(seq) FROM outbox o WHERE o.conn = s.conn))`
)

// takeTurns gives each hub so many orders, a block at a time. The first blocks warm up.
func takeTurns(ctx context.Context, pair []*history, count int) error {
	for at := -block * 2; at < count; at += block {
		for _, h := range pair {
			if at == 0 {
				h.times, h.cpu, h.Orders = nil, 0, 0
			}
			if err := h.block(ctx); err != nil {
				return fmt.Errorf("ordering where %d have ended: %w", h.Ended, err)
			}
		}
	}
	for _, h := range pair {
		h.P50, h.P99, h.CPU = quantile(h.times, 0.5), quantile(h.times, 0.99), h.cpu/float64(h.Orders)
	}
	return nil
}

// block gives the hub some orders.
func (h *history) block(ctx context.Context) error {
	before, err := h.used()
	if err != nil {
		return err
	}
	n := max(block, 2*h.InFlight)
	times := make([]float64, n)
	var g errgroup.Group
	g.SetLimit(h.InFlight)
	for i := range n {
		g.Go(func() error {
			began := time.Now()
			ask := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeNoop}, IdempotencyKey: "order-" + strconv.FormatInt(began.UnixNano(), 36)}
			err := h.mesh.Ctl.Do(ctx, "POST", "/api/v1/tasks", ask.Revealed(), nil)
			times[i] = float64(time.Since(began).Microseconds()) / 1000
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	after, err := h.used()
	h.times, h.cpu, h.Orders = append(h.times, times...), h.cpu+after-before, h.Orders+n
	return err
}

// used is the processor time of the hub and its database since it started.
func (h *history) used() (float64, error) {
	own, postgres, err := bench.Used(h.mesh.Hub.Cmd.Process.Pid)
	return own + postgres, err
}
