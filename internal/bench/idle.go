package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/bench/record"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// An Idle is what an instance holds and uses while it has nothing to do: memory in KiB,
// processor time in hundredths of one core.
type Idle struct {
	Name        string  `json:"name"`
	Spokes      int     `json:"spokes"` // linked to the hub at that time
	RSS         int64   `json:"rss_kib"`
	PSS         int64   `json:"pss_kib"`
	Postgres    int64   `json:"postgres_pss_kib"` // of its private server, all processes
	CPU         float64 `json:"cpu_percent"`
	PostgresCPU float64 `json:"postgres_cpu_percent"`
}

// IdleOptions say how idle instances are measured.
type IdleOptions struct {
	Spokes []int         // numbers of spokes, ascending; the hub and the first spoke are measured with each
	Settle time.Duration // after the last start: sessions that nobody uses end after a minute
	Window time.Duration // over which processor time is counted
	Say    func(format string, args ...any)
}

// Idles is a whole run.
type Idles struct {
	record.Origin
	Settle float64 `json:"settle_s"`
	Window float64 `json:"window_s"`
	List   []Idle  `json:"idle"`
}

// MeasureIdle measures a hub and one of its spokes that have nothing to do.
func MeasureIdle(ctx context.Context, o IdleOptions) (found Idles, err error) {
	if len(o.Spokes) == 0 || o.Spokes[0] < 1 || !slices.IsSorted(o.Spokes) || o.Window < time.Second {
		return found, errors.New("numbers of spokes are at least 1 and ascend, and the window is at least 1s")
	}
	found = Idles{Origin: record.Here(), Settle: o.Settle.Seconds(), Window: o.Window.Seconds()}
	m, err := open(ctx, 4)
	if m != nil {
		defer func() { err = errors.Join(err, m.Stop(ctx)) }()
	}
	if err != nil {
		return found, err
	}
	for _, n := range o.Spokes {
		o.Say("%d spokes: start, %s for what starting left behind, %s measured ...", n, o.Settle, o.Window)
		for len(m.Spokes) < n {
			if err := m.AddSpoke(ctx, "spoke"+strconv.Itoa(len(m.Spokes)+1), policy.Presets["open"]); err != nil {
				return found, err
			}
		}
		if err := wait.For(ctx, o.Settle); err != nil {
			return found, err
		}
		list, err := idle(ctx, o.Window, n, m.Hub, m.Spokes["attic"])
		if err != nil {
			return found, err
		}
		found.List = append(found.List, list...)
	}
	return found, nil
}

// idle measures instances for a while.
func idle(ctx context.Context, window time.Duration, spokes int, list ...*fleet.Process) (found []Idle, err error) {
	share := func(ms float64, began time.Time) float64 { return ms / float64(time.Since(began).Milliseconds()) * 100 }
	own, postgres := make([]float64, len(list)), make([]float64, len(list))
	began := time.Now()
	for i, p := range list {
		if own[i], postgres[i], err = Used(p.Cmd.Process.Pid); err != nil {
			return nil, err
		}
	}
	if err := wait.For(ctx, window); err != nil {
		return nil, err
	}
	for i, p := range list {
		pid := p.Cmd.Process.Pid
		f := Idle{Name: p.Name, Spokes: spokes}
		used, server, err := Used(pid)
		if err != nil {
			return nil, err
		}
		f.CPU, f.PostgresCPU = share(used-own[i], began), share(server-postgres[i], began)
		if f.RSS, f.PSS, err = memory(pid, false); err != nil {
			return nil, err
		}
		if _, f.Postgres, err = memory(pid, true); err != nil {
			return nil, fmt.Errorf("reading the memory of %s's database: %w", p.Name, err)
		}
		found = append(found, f)
	}
	return found, nil
}
