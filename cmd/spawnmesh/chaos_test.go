package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// Spawns go on while hub, spoke and either Postgres are killed with -9 at random
// moments: every agent runs exactly once, as its own trace says, and every
// result arrives. make chaos runs 1,000 spawns with 20 kills.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	spawns, kills := scale.Of(t, "SPAWNMESH_CHAOS_SPAWNS", 120), scale.Of(t, "SPAWNMESH_CHAOS_KILLS", 5)
	seed := scale.Seed(t, "SPAWNMESH_CHAOS_SEED")
	m := startMesh(t, "--slots", "16")
	tr := newTrace(t)
	ids := make([]string, spawns)
	ctx := t.Context()

	var wg sync.WaitGroup
	next, errs := make(chan int), make(chan error, spawns)
	for range 4 {
		wg.Go(func() {
			for i := range next {
				ids[i] = newID()
				if err := m.Order(ctx, ids[i], tr.agent(ids[i], "0.2")); err != nil {
					errs <- err
				}
			}
		})
	}
	chaos := newChaos(m, seed)
	for i := range spawns {
		next <- i
		if kills > 0 && (i+1)%max(1, spawns/(kills+1)) == 0 && chaos.done < kills {
			require.NoError(t, chaos.injectFault(ctx, t))
		}
	}
	close(next)
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}

	for _, id := range ids {
		v, err := m.Ended(ctx, id, 5*time.Minute)
		require.NoError(t, err)
		require.Equal(t, commands.Completed, v.State, "%s: %s", id, v.Sentence())
	}
	starts, ends := tr.counts(t)
	lost, twice := 0, 0
	for _, id := range ids {
		if starts[id] == 0 || ends[id] == 0 {
			lost++
		}
		if starts[id] > 1 || ends[id] > 1 {
			twice++
		}
	}
	require.NoError(t, m.Settled(ctx))
	t.Logf("%d spawns, %d kills (%s): %d lost, %d run twice", spawns, chaos.done, strings.Join(chaos.victims, ", "), lost, twice)
	require.Zero(t, lost)
	require.Zero(t, twice)
}

// chaos kills one thing at a time and brings it back.
type chaos struct {
	m       *fleet.Mesh
	rand    *rand.Rand
	done    int
	victims []string
}

func newChaos(m *fleet.Mesh, seed uint64) *chaos {
	return &chaos{m: m, rand: rand.New(rand.NewPCG(seed, seed))}
}

func (c *chaos) injectFault(ctx context.Context, t *testing.T) error {
	victim := c.m.Hub
	if c.rand.IntN(2) == 0 {
		victim = c.m.Spokes["attic"]
	}
	c.done++
	if c.rand.IntN(2) == 0 {
		c.victims = append(c.victims, victim.Name+"'s postgres")
		raw, err := os.ReadFile(filepath.Join(victim.Dir, "pg", "postmaster.pid"))
		if err != nil {
			return nil // it is being restarted from the last fault
		}
		line, _, _ := strings.Cut(string(raw), "\n")
		pid, err := strconv.Atoi(line)
		if err != nil {
			return nil
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return nil // the last fault has killed it, and its file is still there
	}
	c.victims = append(c.victims, victim.Name)
	victim.Kill()
	return victim.Start(ctx)
}
