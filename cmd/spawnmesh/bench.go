package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/bench"
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
		RunE: func(c *cobra.Command, _ []string) error {
			return a.benchSpawn(c.Context(), bench.Options{InFlight: flight, Count: count, Runtime: runtime})
		},
	}
	spawn.Flags().IntSliceVar(&flight, "in-flight", []int{1, 8, 64}, "how many spawns are under way at a time: `N,...`")
	spawn.Flags().IntVar(&count, "count", 0, "`N` spawns per measurement (default 60 and 40 for each in flight)")
	spawn.Flags().StringVar(&runtime, "runtime", commands.RuntimeExec, "`RUNTIME` exec (a real process) or noop (none)")
	c.AddCommand(spawn, a.benchIdleCommand(), a.benchFollowCommand())
	return c
}

func (a *app) benchSpawn(ctx context.Context, o bench.Options) (err error) {
	if o.Parts, err = a.options(slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	o.Parts.DatabaseURL, o.Parts.Made = "", nil // a private database, whatever the environment names
	o.Say = func(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }
	b, err := bench.Spawn(ctx, o)
	if err != nil {
		return err
	}
	return a.printBench(b)
}

func (a *app) printBench(b bench.Spawns) error {
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
	fmt.Fprintf(a.out, "\nprocessor time of one spawn, without agents and their shims\n")
	for _, f := range b.Figures {
		fmt.Fprintf(a.out, "  %-4d in flight: %s (hub %s, its Postgres %s; spoke %s, its Postgres %s)\n", f.InFlight, msText(f.CPU.Total()),
			msText(f.CPU.Hub), msText(f.CPU.HubPostgres), msText(f.CPU.Spoke), msText(f.CPU.SpokePostgres))
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
		fmt.Fprintf(a.out, "processes under their shims alone, %d at a time: %.0f a second; the mesh does %.2f of that\n", b.Most().InFlight, b.Limit, b.OfLimit)
	}
	return nil
}

func msText(v float64) string { return fmt.Sprintf("%.2f ms", v) }

func (a *app) benchIdleCommand() *cobra.Command {
	o := bench.IdleOptions{}
	c := &cobra.Command{
		Use: "idle", Short: "Measure what a hub and spokes cost that have nothing to do", Args: cobra.NoArgs,
		Long: `Run a hub and spokes on this machine that have nothing to do.

For each number of spokes: the memory of the hub, of one spoke and of their
databases, and the processor time that each takes, in hundredths of one core.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.benchIdle(c.Context(), o) },
	}
	c.Flags().IntSliceVar(&o.Spokes, "spokes", []int{1}, "how many spokes are linked: `N,...`, one number after the other")
	c.Flags().DurationVar(&o.Settle, "settle", 75*time.Second, "how long what starting left behind has to go")
	c.Flags().DurationVar(&o.Window, "window", time.Minute, "how long processor time is counted")
	return c
}

func (a *app) benchIdle(ctx context.Context, o bench.IdleOptions) error {
	o.Say = func(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }
	found, err := bench.MeasureIdle(ctx, o)
	if err != nil {
		return err
	}
	t := table{head: []string{"PROCESS", "SPOKES", "RSS", "PSS", "POSTGRES PSS", "CPU", "POSTGRES CPU"}}
	for _, m := range found.List {
		t.rows = append(t.rows, []string{m.Name, strconv.Itoa(m.Spokes), mib(m.RSS), mib(m.PSS), mib(m.Postgres), percent(m.CPU), percent(m.PostgresCPU)})
		t.names = append(t.names, m.Name)
	}
	return a.print(found, anys(found.List), t)
}

func (a *app) benchFollowCommand() *cobra.Command {
	o := bench.FollowOptions{}
	c := &cobra.Command{
		Use: "follow", Short: "Measure requests to a hub beside programs that follow its events", Args: cobra.NoArgs,
		Long: `Run a hub and a spoke on this machine, and programs that follow the hub's events.

For each number of programs: how long requests take meanwhile, of which every
fifth orders an agent, how soon an event is with them and with webhooks, and the
memory and the processor time of the hub.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.benchFollow(c.Context(), o) },
	}
	c.Flags().IntSliceVar(&o.Clients, "clients", []int{0, 1000}, "how many programs follow: `N,...`, one number after the other")
	c.Flags().IntVar(&o.Rate, "rate", 100, "`N` requests a second")
	c.Flags().IntVar(&o.Hooks, "webhooks", 0, "`N` webhooks are told of the same; their receiver is on this machine")
	c.Flags().DurationVar(&o.Window, "window", 20*time.Second, "how long they are made")
	return c
}

func (a *app) benchFollow(ctx context.Context, o bench.FollowOptions) error {
	o.Say = func(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }
	found, err := bench.MeasureFollowed(ctx, o)
	if err != nil {
		return err
	}
	t := table{head: []string{"CLIENTS", "REQUEST P50", "P99", "CHANGES", "EVENTS EACH", "EVENT P50", "P99", "DELIVERIES EACH", "DELIVERY P50", "P99", "RSS", "A CLIENT", "CPU"}}
	for _, f := range found.List {
		t.rows = append(t.rows, []string{strconv.Itoa(f.Clients), msText(f.P50), msText(f.P99), strconv.FormatInt(f.Made, 10), strconv.Itoa(f.Events), msText(f.EventP50), msText(f.EventP99), strconv.Itoa(f.Told), msText(f.HookP50), msText(f.HookP99), mib(f.RSS), fmt.Sprintf("%.0f KiB", f.PerClient), percent(f.CPU)})
		t.names = append(t.names, strconv.Itoa(f.Clients))
	}
	return a.print(found, anys(found.List), t)
}

func percent(v float64) string { return fmt.Sprintf("%.2f %%", v) }

func mib(kib int64) string { return fmt.Sprintf("%.1f MiB", float64(kib)/1024) }
