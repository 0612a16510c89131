package main

import (
	"fmt"
	"slices"
)

// tables are what the page has places for.
var tables = map[string]func(results) string{
	"summary": summary, "spawn": spawnTable, "parts": partsTable, "processor-time": cpuTable, "bare": bareTable, "nex": nexTable,
	"claim": func(r results) string { return claimTable(r.Claim) }, "claim-shipped": func(r results) string { return claimTable(r.Shipped) },
	"server": serverTable, "contenders": contendersTable, "curve": curveTable, "accept": acceptTable, "read": readTable, "idle": idleTable, "follow": followTable, "go": goTable,
}

func spawnTable(r results) string {
	g := table(r.Spawn.origin, "", "in flight", "spawns/s", "start, median / 99th", "result, median / 99th")
	for _, s := range []struct {
		what string
		run  spawnRun
	}{{"a process each", r.Spawn}, {"no process", r.Noop}} {
		for _, f := range s.run.Figures {
			g.row(s.what, fmt.Sprint(f.InFlight), whole(f.PerSec), ms(f.StartP50)+" / "+ms(f.StartP99)+" ms", ms(f.ResultP50)+" / "+ms(f.ResultP99)+" ms")
		}
	}
	return g.String()
}

func partsTable(r results) string {
	g := table(r.Spawn.origin, "part, alone", "median", "times on the way to a start", "together")
	for _, p := range r.Spawn.Parts {
		g.row(p.Name, ms(p.MS)+" ms", fmt.Sprint(p.Times), ms(p.MS*float64(p.Times))+" ms")
	}
	g.row("sum", "", "", ms(r.Spawn.Sum)+" ms")
	return g.String()
}

func cpuTable(r results) string {
	g := table(r.Noop.origin, "in flight", "hub", "its Postgres", "spoke", "its Postgres", "all")
	for _, f := range r.Noop.Figures {
		g.row(fmt.Sprint(f.InFlight), ms(f.CPU.Hub), ms(f.CPU.HubPostgres), ms(f.CPU.Spoke), ms(f.CPU.SpokePostgres), ms(f.cpu())+" ms")
	}
	return g.String()
}

func bareTable(r results) string {
	m := r.Bare.Medians
	last := r.Bare.Rounds[len(r.Bare.Rounds)-1]
	g := table(r.Bare.origin, fmt.Sprintf("%d in flight, medians of %d rounds", last.Bare.InFlight, len(r.Bare.Rounds)), "processor time of a spawn", "spawns/s, last round", "spawnmesh to it")
	g.row("spawnmesh, no process", ms(m.Ours)+" ms", whole(last.Ours.PerSec), "")
	g.row("bare pipeline, the start reported", ms(m.Bare)+" ms", whole(last.Bare.PerSec), two(m.Ratio))
	g.row("bare pipeline, start and result reported", ms(m.Result)+" ms", whole(last.Result.PerSec), two(m.RatioWithResult))
	return g.String()
}

func nexTable(r results) string {
	last := r.Nex.Rounds[len(r.Nex.Rounds)-1]
	g := table(r.Nex.origin, fmt.Sprintf("%d in flight, medians of %d rounds", last.Nex.InFlight, len(r.Nex.Rounds)), "starts/s", "start, median / 99th, last round")
	g.row("spawnmesh", whole(r.Nex.Ours), ms(last.Ours.StartP50)+" / "+ms(last.Ours.StartP99)+" ms")
	g.row("Nex", whole(r.Nex.Nex), ms(last.Nex.StartP50)+" / "+ms(last.Nex.StartP99)+" ms")
	return g.String()
}

// claimRows are the lines of the tables of contenders.
var claimRows = []struct{ figure, text, format string }{
	{"insert-one", "inserts/s, one a call, 8 connections", ""}, {"insert-many", "inserts/s, 1,000 a call, 4 connections", ""},
	{"claim-1", "claims/s, one at a time, 16 connections", ""}, {"claim-100", "claims/s, 100 a claim, 4 connections", ""}, {"claim-500", "claims/s, 500 a claim, 2 connections", ""},
	{"worked", "worked/s: claimed and completed", ""},
	{"pickup-p50", "from insert to start at 100/s, median, ms", "%.2f"}, {"pickup-p99", "the same, 99th percentile, ms", "%.2f"},
	{"pickup-big-p50", "beside 1 M waiting jobs, median, ms", "%.2f"}, {"pickup-big-p99", "the same, 99th percentile, ms", "%.2f"},
	{"client-rss", "client's memory while it works, MiB RSS", "%.0f"}, {"server-pss", "server's memory while it works, MiB PSS", "%.0f"},
}

func claimTable(c claimRun) string {
	g := table(c.origin, append([]string{fmt.Sprintf("%s jobs, medians of %d rounds", whole(float64(c.Jobs)), len(c.Rounds))}, titles...)...)
	for _, line := range claimRows {
		cells, known := []string{line.text}, false
		for _, name := range names {
			v, ok := c.Medians[name][line.figure]
			switch {
			case !ok:
				cells = append(cells, "–")
			case line.format == "":
				cells = append(cells, whole(v))
			default:
				cells = append(cells, fmt.Sprintf(line.format, v))
			}
			known = known || ok
		}
		if known {
			g.row(cells...)
		}
	}
	return g.String()
}

func serverTable(r results) string {
	g := table(r.Claim.origin, "setting of the server", "the usual", "as shipped")
	var settings []string
	for name := range r.Claim.Server {
		settings = append(settings, name)
	}
	slices.Sort(settings)
	for _, name := range settings {
		g.row("`"+name+"`", r.Claim.Server[name], r.Shipped.Server[name])
	}
	return g.String()
}

func contendersTable(r results) string {
	g := table(r.Claim.origin, "", "version", "settings")
	for i, name := range names {
		g.row(titles[i], r.Claim.Contenders[name].Version, r.Claim.Contenders[name].Settings)
	}
	return g.String()
}

func curveTable(r results) string {
	g := table(r.Curve.origin, "ms", "one claim, median / 99th", "99th to the first line's", "100 in a claim, per task", "show", "list, median / 99th")
	first := r.Curve.Points[0]
	for _, p := range r.Curve.Points {
		g.row(backlogOf(p), ms(p.P50)+" / "+ms(p.P99), two(p.P99/first.P99), ms(p.Batch), ms(p.Show), ms(p.ListP50)+" / "+ms(p.ListP99))
	}
	return g.String()
}

// backlogOf says how large a backlog was.
func backlogOf(p curvePoint) string {
	text := short(float64(p.Ready)) + " ready"
	if p.Unclaimable > 0 {
		text += ", " + short(float64(p.Unclaimable)) + " in front that the claimer may not have"
	}
	if p.Ended > 0 {
		text += ", " + short(float64(p.Ended)) + " ended"
	}
	return text
}

func acceptTable(r results) string {
	g := table(r.Accept.origin, "ended before", "orders in flight", "order, median / 99th", "processor time of an order")
	for _, h := range r.Accept.Histories {
		g.row(whole(float64(h.Ended)), fmt.Sprint(h.InFlight), ms(h.P50)+" / "+ms(h.P99)+" ms", ms(h.CPU)+" ms")
	}
	return g.String()
}

func readTable(r results) string {
	g := table(r.Read.origin, "what is asked for", sizeOf(r.Read.Small), sizeOf(r.Read.Large), "ratio, median / 99th")
	for _, q := range r.Read.Questions {
		g.row(q.Name, ms(q.Small.P50)+" / "+ms(q.Small.P99)+" ms", ms(q.Large.P50)+" / "+ms(q.Large.P99)+" ms", two(q.P50)+" / "+two(q.P99))
	}
	return g.String()
}

// sizeOf says how large a hub was.
func sizeOf(s readSize) string {
	return whole(float64(s.Ended)) + " ended, " + whole(float64(s.Running)) + " running, median / 99th"
}

func followTable(r results) string {
	g := table(r.Follow.origin, "clients", "request p50, ms", "p99", "changes, and events to the last client", "event p50, ms", "p99", "deliveries to each webhook", "delivery p50, ms", "p99", "RSS, MiB", "of it a client, KiB", "processor time, % of a core")
	for _, f := range r.Follow.Followed {
		g.row(fmt.Sprint(f.Clients), two(f.P50), two(f.P99), seen(f.Made, f.Events), two(f.EventP50), two(f.EventP99), fmt.Sprint(f.Told), two(f.HookP50), two(f.HookP99), mib(f.RSS), fmt.Sprintf("%.0f", f.PerClient), two(f.CPU))
	}
	return g.String()
}

func idleTable(r results) string {
	g := table(r.Idle.origin, "process", "spokes", "RSS, MiB", "PSS, MiB", "its Postgres, PSS, MiB", "processor time, % of a core", "its Postgres, % of a core")
	for _, i := range r.Idle.Idle {
		name := "hub"
		if i.Name != "hub" {
			name = "a spoke"
		}
		g.row(name, fmt.Sprint(i.Spokes), mib(i.RSS), mib(i.PSS), mib(i.Postgres), two(i.CPU), two(i.PostgresCPU))
	}
	return g.String()
}

func goTable(r results) string {
	g := table(r.Go.origin, "benchmark", "figures")
	for _, b := range r.Go.Benchmarks {
		var units []string
		for unit := range b.Values {
			units = append(units, unit)
		}
		slices.Sort(units)
		text := ""
		for _, unit := range units {
			text += fmt.Sprintf("%s%.4g %s", map[bool]string{true: ", "}[text != ""], b.Values[unit], unit)
		}
		g.row("`"+b.Name+"`", text)
	}
	return g.String()
}

// seen are changes, where a run has counted them, and how many of them were seen.
func seen(made, events int) string {
	if made == 0 {
		return fmt.Sprint("not counted, ", events)
	}
	return fmt.Sprintf("%d, %d", made, events)
}
