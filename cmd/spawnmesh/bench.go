package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

func (a *app) benchCommand() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure the mesh on this machine"}
	var flight []int
	var count int
	var runtime string
	spawn := &cobra.Command{
		Use: "spawn", Short: "Measure spawns: throughput, latencies, and the parts they are made of", Args: cobra.NoArgs,
		Long: `Run a hub and a spoke on this machine and spawn agents that do nothing.

For each number in flight: spawns per second, and the time from the stored order
to the start and to the result as the hub knows them. Beside it, from the same
run, the parts one spawn is made of, measured alone: a transaction, a publish, a
signature, and the start of a process under its shim.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.benchSpawn(c.Context(), flight, count, runtime) },
	}
	spawn.Flags().IntSliceVar(&flight, "in-flight", []int{1, 8, 64}, "how many spawns are under way at a time")
	spawn.Flags().IntVar(&count, "count", 0, "spawns per measurement (default 60 and 40 for each in flight)")
	spawn.Flags().StringVar(&runtime, "runtime", commands.RuntimeExec, "exec (a real process) or noop (none)")
	idle := &cobra.Command{
		Use: "idle", Short: "Measure the memory of an idle hub and spoke with their databases", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.benchIdle(c.Context()) },
	}
	c.AddCommand(spawn, idle)
	return c
}

// A SpawnFigure is what one measurement found; times are milliseconds.
type SpawnFigure struct {
	InFlight int     `json:"in_flight"`
	Spawns   int     `json:"spawns"`
	PerSec   float64 `json:"spawns_per_second"`
	StartP50 float64 `json:"start_p50_ms"`
	StartP99 float64 `json:"start_p99_ms"`
	EndP50   float64 `json:"result_p50_ms"`
	EndP99   float64 `json:"result_p99_ms"`
}

// A SpawnBench is a whole run.
type SpawnBench struct {
	Runtime string        `json:"runtime"`
	Figures []SpawnFigure `json:"figures"`
	Parts   []Part        `json:"parts"`
	Sum     float64       `json:"sum_of_parts_ms"` // on the way from order to start
	Ratio   float64       `json:"start_p50_at_1_to_sum"`
	Limit   float64       `json:"starts_per_second_alone,omitempty"` // with as many in flight as the last figure
}

// most is the highest number in flight that was measured.
func (b *SpawnBench) most() int {
	n := 1
	for _, f := range b.Figures {
		n = max(n, f.InFlight)
	}
	return n
}

func (a *app) benchSpawn(ctx context.Context, flight []int, count int, runtime string) (err error) {
	m, err := a.benchMesh(ctx, slices.Max(append([]int{4}, flight...)))
	if m != nil {
		defer func() { err = errors.Join(err, m.stop(ctx)) }()
	}
	if err != nil {
		return err
	}
	b := SpawnBench{Runtime: runtime}
	if _, err := m.measure(ctx, 4, 40, runtime); err != nil { // warm up
		return err
	}
	for _, n := range flight {
		spawns := count
		if spawns == 0 {
			spawns = 60 + 40*n
		}
		fmt.Fprintf(a.err, "%d spawns, %d in flight ...\n", spawns, n)
		f, err := m.measure(ctx, n, spawns, runtime)
		if err != nil {
			return err
		}
		b.Figures = append(b.Figures, f)
	}
	fmt.Fprintln(a.err, "the parts alone ...")
	if err := a.measureParts(ctx, m.dir, &b); err != nil {
		return err
	}
	for _, p := range b.Parts {
		b.Sum += p.Total()
	}
	if len(b.Figures) > 0 && b.Figures[0].InFlight == 1 {
		b.Ratio = b.Figures[0].StartP50 / b.Sum
	}
	return a.printBench(b)
}

func (a *app) benchMesh(ctx context.Context, slots int) (*mesh, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	m, err := newMesh(ctx, self, "bench")
	if err != nil {
		return m, err
	}
	return m, m.addSpoke(ctx, "attic", policy.Presets["open"], "--slots", strconv.Itoa(slots))
}

// measure keeps n spawns under way until spawns have ended.
func (m *mesh) measure(ctx context.Context, n, spawns int, runtime string) (SpawnFigure, error) {
	var mu sync.Mutex // guards starts, ends and errs
	var starts, ends []float64
	var errs []error
	next := make(chan int)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range next {
				v, err := m.one(ctx, runtime)
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				} else {
					starts, ends = append(starts, ms(v.StartedAt.Sub(v.CreatedAt))), append(ends, ms(v.EndedAt.Sub(v.CreatedAt)))
				}
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	for i := range spawns {
		next <- i
	}
	close(next)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return SpawnFigure{}, err
	}
	return SpawnFigure{InFlight: n, Spawns: spawns, PerSec: float64(spawns) / time.Since(began).Seconds(),
		StartP50: quantile(starts, 0.5), StartP99: quantile(starts, 0.99), EndP50: quantile(ends, 0.5), EndP99: quantile(ends, 0.99)}, nil
}

// one spawns an agent that does nothing and waits for its result.
func (m *mesh) one(ctx context.Context, runtime string) (hub.AgentView, error) {
	s := commands.Spawn{Runtime: runtime}
	if runtime == commands.RuntimeExec {
		s.Argv = []string{"true"}
	}
	var got hub.SpawnAnswer
	var v hub.AgentView
	if err := m.ctl.Do(ctx, "POST", "/v1/agents", hub.SpawnRequest{Spoke: "attic", Spawn: s}, &got); err != nil {
		return v, err
	}
	for !v.State.Terminal() {
		if err := m.ctl.Do(ctx, "GET", "/v1/agents/"+got.ID+"?wait=30s", nil, &v); err != nil {
			return v, err
		}
	}
	if v.State != commands.Completed || v.StartedAt == nil {
		return v, fmt.Errorf("agent %s %s", got.ID, sentence(v))
	}
	return v, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// quantile returns the value below which the part q of list is.
func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (a *app) printBench(b SpawnBench) error {
	if a.output == "json" || a.output == "ndjson" {
		return a.printJSON(b)
	}
	t := table{head: []string{"IN FLIGHT", "SPAWNS/S", "START P50", "START P99", "RESULT P50", "RESULT P99"}}
	for _, f := range b.Figures {
		t.rows = append(t.rows, []string{strconv.Itoa(f.InFlight), fmt.Sprintf("%.0f", f.PerSec), msText(f.StartP50), msText(f.StartP99), msText(f.EndP50), msText(f.EndP99)})
		t.names = append(t.names, strconv.Itoa(f.InFlight))
	}
	if err := a.print(b, anys(b.Figures), t); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "\nparts of one spawn up to its start (%s)\n", b.Runtime)
	for _, p := range b.Parts {
		fmt.Fprintf(a.out, "  %-36s %8s x %d\n", p.Name, msText(p.MS), p.Times)
	}
	fmt.Fprintf(a.out, "  %-36s %8s\n", "sum", msText(b.Sum))
	if b.Ratio > 0 {
		fmt.Fprintf(a.out, "start p50 at 1 in flight is %.2f times the sum\n", b.Ratio)
	}
	if b.Limit > 0 {
		last := b.Figures[len(b.Figures)-1]
		fmt.Fprintf(a.out, "processes alone, %d at a time: %.0f a second; the mesh does %.2f of that\n", b.most(), b.Limit, last.PerSec/b.Limit)
	}
	return nil
}

func msText(v float64) string { return fmt.Sprintf("%.2f ms", v) }

func (a *app) benchIdle(ctx context.Context) (err error) {
	m, err := a.benchMesh(ctx, 4)
	if m != nil {
		defer func() { err = errors.Join(err, m.stop(ctx)) }()
	}
	if err != nil {
		return err
	}
	select { // what start-up left behind is given back after a while
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(45 * time.Second):
	}
	t := table{head: []string{"PROCESS", "RSS", "PSS", "POSTGRES PSS"}}
	for _, n := range []*node{m.hub, m.spokes["attic"]} {
		rss, pss, err := memory(n.cmd.Process.Pid, false)
		if err != nil {
			return err
		}
		_, pg, err := memory(n.cmd.Process.Pid, true)
		if err != nil {
			return err
		}
		t.rows = append(t.rows, []string{n.name, mib(rss), mib(pss), mib(pg)})
		t.names = append(t.names, n.name)
	}
	return a.print(t.rows, anys(t.rows), t)
}

func mib(kib int64) string { return fmt.Sprintf("%.1f MiB", float64(kib)/1024) }

// memory sums what the kernel says of a process, or of all its descendants, in
// KiB.
func memory(pid int, descendants bool) (rss, pss int64, err error) {
	pids := []int{pid}
	if descendants {
		pids = children(pid)
	}
	for i := 0; i < len(pids); i++ {
		if descendants {
			pids = append(pids, children(pids[i])...)
		}
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pids[i]))
		if err != nil {
			return 0, 0, fmt.Errorf("reading the memory of process %d: %w", pids[i], err)
		}
		for line := range strings.Lines(string(raw)) {
			var kib int64
			if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kib); n == 1 {
				rss += kib
			}
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
				pss += kib
			}
		}
	}
	return rss, pss, nil
}

func children(pid int) []int {
	var list []int
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range tasks {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		for _, f := range strings.Fields(string(raw)) {
			if n, err := strconv.Atoi(f); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}
