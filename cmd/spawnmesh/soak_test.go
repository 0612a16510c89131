package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// Two hubs and four spokes, two of which serve both hubs, work while links are
// cut, programs are killed, stopped and frozen, databases are restored from
// backups, connections are suspended, revoked and made anew, and strangers and
// agents flood: in random order, by a seed. Afterwards every order has ended with
// a reason, no agent ran twice, no output is missing, nothing waits, and no
// process holds more than before. make soak runs it for half an hour.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := newSoak(t)
	s.settle()
	before := s.usage()

	orders := s.keepOrdering()
	for until := time.Now().Add(s.length); time.Now().Before(until); {
		s.injectFault()
	}
	orders()
	s.heal()

	s.settle()
	s.check()
	s.checkUsage(before)
}

var spokeNames = []string{"attic", "cellar", "loft", "shed"}

// A soak is a run under way.
type soak struct {
	t       *testing.T
	ctx     context.Context
	length  time.Duration
	output  int // bytes that an outage lets wait
	pause   int // milliseconds at most between two orders to a hub
	rand    *rand.Rand
	faults  []func() // of the round under way, those that have not happened
	hubs    []*fleet.Mesh
	links   []*soakLink
	backups map[*fleet.Process]bool // whose database was copied
	trace   trace

	mu     sync.Mutex // guards orders
	orders []*soakOrder
}

// A soakLink is a connection of a spoke to a hub, through a proxy of its own.
type soakLink struct {
	hub   *fleet.Mesh
	spoke *fleet.Process
	proxy *meshtest.Proxy
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	seed := uint64(scale.Of(t, "SPAWNMESH_SOAK_SEED", 1))
	t.Logf("SPAWNMESH_SOAK_SEED=%d repeats the choice of what happens", seed)
	s := &soak{t: t, ctx: t.Context(), rand: rand.New(rand.NewPCG(seed, seed)), backups: map[*fleet.Process]bool{}, trace: newTrace(t),
		length: time.Duration(scale.Of(t, "SPAWNMESH_SOAK_SECONDS", 60)) * time.Second, output: scale.Of(t, "SPAWNMESH_SOAK_OUTPUT", 10<<20), pause: scale.Of(t, "SPAWNMESH_SOAK_PAUSE", 800)}
	lab, annex := startHub(t), startHub(t, "--name", "annex")
	s.hubs = []*fleet.Mesh{lab, annex}
	for i, name := range spokeNames {
		hubs := s.hubs[:1+i/2] // the last two serve both
		n := lab.Process(name, "spoke", "run", "--heartbeat", "1s", "--slots", "4", "--drain", "1s", "--lease", "1m")
		lab.Spokes[name] = n
		withCluster(t, n.Dir)
		require.NoError(t, os.WriteFile(policy.File(n.Dir), []byte(loose), 0o644))
		for _, h := range hubs {
			l := &soakLink{h, n, meshtest.NewProxy(t, h.Hub.Args[3])}
			s.links = append(s.links, l)
			s.join(l)
		}
		require.NoError(t, n.Start(s.ctx))
	}
	return s
}

// join makes the connection of l, for the first time or anew.
func (s *soak) join(l *soakLink) {
	s.t.Helper()
	h := hand{t: s.t, dir: l.hub.Hub.Dir}
	_, token := h.invite(l.spoke.Name)
	token.Address = l.proxy.Addr()
	text, err := token.Text()
	require.NoError(s.t, err)
	hand{t: s.t, dir: l.spoke.Dir}.joins(0, "", text)
}

func (s *soak) say(format string, args ...any) {
	s.t.Logf("%s "+format, append([]any{time.Now().Format("15:04:05")}, args...)...)
}

func (s *soak) sleep(least, most time.Duration) {
	time.Sleep(least + time.Duration(s.rand.Int64N(int64(most-least)))) // how long a fault lasts, not a wait for anything
}

func (s *soak) link() *soakLink { return s.links[s.rand.IntN(len(s.links))] }

// process is any hub or spoke.
func (s *soak) process() *fleet.Process {
	all := s.processes()
	return all[s.rand.IntN(len(all))]
}

func (s *soak) processes() []*fleet.Process {
	all := []*fleet.Process{s.hubs[0].Hub, s.hubs[1].Hub}
	for _, name := range spokeNames {
		all = append(all, s.hubs[0].Spokes[name])
	}
	return all
}

// heal ends every fault, and joins anew where a backup no longer knows a connection.
func (s *soak) heal() {
	s.t.Helper()
	for _, l := range s.links {
		l.proxy.Heal()
	}
	for _, n := range s.processes() {
		if n.Cmd == nil {
			require.NoError(s.t, n.Start(s.ctx))
		}
	}
	for _, l := range s.links {
		s.resume(l)
		err := s.linked(l, 30*time.Second)
		if err != nil {
			s.say("%s and its hub do not find each other (%v); they join anew", l.spoke.Name, err)
			s.rejoin(l)
		}
	}
}

// resume takes back what an operator on either side suspended, which a restored
// backup may have forgotten or remembered.
func (s *soak) resume(l *soakLink) {
	hand{t: s.t, dir: l.hub.Hub.Dir}.run("", "connections", "resume", l.spoke.Name)
	hand{t: s.t, dir: l.spoke.Dir}.run("", "connections", "resume", hubName(l.hub))
}

func hubName(m *fleet.Mesh) string {
	if len(m.Hub.Args) > 7 { // ... --name lab --name annex
		return m.Hub.Args[len(m.Hub.Args)-1]
	}
	return "lab"
}

// linked waits until the hub sees the spoke of l alive.
func (s *soak) linked(l *soakLink, limit time.Duration) error {
	return fleet.Poll(s.ctx, limit, "waiting for the link of "+l.spoke.Name, func() (bool, error) {
		v, err := s.view(l)
		return err == nil && v.Linked && v.Liveness == hub.Alive && v.State == "active" && v.Differs == "" && v.Says.State == "active", nil
	})
}

// settle waits until nothing is under way: every order has ended and every message
// is confirmed.
func (s *soak) settle() {
	s.t.Helper()
	for _, o := range s.taken() {
		if err := s.ended(o); err != nil {
			require.NoError(s.t, err, "%s\n%s", o, strings.Join(s.told(o), "\n"))
		}
	}
	for _, l := range s.links {
		require.NoError(s.t, s.linked(l, time.Minute))
		require.NoError(s.t, fleet.Poll(s.ctx, 2*time.Minute, fmt.Sprintf("waiting for the confirmations of %s and %s", hubName(l.hub), l.spoke.Name), func() (bool, error) {
			v, err := s.view(l)
			return err == nil && v.Unconfirmed == 0 && v.Running == 0 && v.Queued == 0, nil
		}))
	}
}
