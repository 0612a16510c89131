package main

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// A soakOrder is an order that a hub has taken.
type soakOrder struct {
	id    string
	link  *soakLink
	argv  func(o *soakOrder) []string
	bytes int // that the agent writes

	view hub.AgentView // as it ended
}

func (o *soakOrder) String() string {
	return fmt.Sprintf("%s by %s on %s", o.id, hubName(o.link.hub), o.link.spoke.Name)
}

// chatter is an agent that writes a known number of bytes.
func (tr trace) chatter(o *soakOrder) []string {
	return []string{"sh", "-c", fmt.Sprintf("echo start %s >> %s; head -c %d /dev/zero | tr '\\0' x; echo end %s >> %s", o.id, tr.path, o.bytes, o.id, tr.path)}
}

func (tr trace) sleeper(o *soakOrder) []string { return tr.agent(o.id, "2") }

func (tr trace) quick(o *soakOrder) []string { return tr.agent(o.id, "0") }

func (tr trace) failing(o *soakOrder) []string {
	return []string{"sh", "-c", fmt.Sprintf("echo start %s >> %s; echo end %s >> %s; exit 3", o.id, tr.path, o.id, tr.path)}
}

// keepOrdering gives orders at both hubs until the returned function is called.
func (s *soak) keepOrdering() (stop func()) {
	done := make(chan struct{})
	var work sync.WaitGroup
	for i, h := range s.hubs {
		choice := rand.New(rand.NewPCG(uint64(i), uint64(i)))
		var links []*soakLink
		for _, l := range s.links {
			if l.hub == h {
				links = append(links, l)
			}
		}
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(50+choice.IntN(s.pause)) * time.Millisecond): // the pace of the operator
				}
				s.orderOne(links[choice.IntN(len(links))], choice)
			}
		})
	}
	return func() {
		close(done)
		work.Wait()
	}
}

func (s *soak) orderOne(l *soakLink, choice *rand.Rand) {
	o := &soakOrder{id: newID(), link: l}
	switch choice.IntN(6) {
	case 0:
		o.argv = s.trace.sleeper
	case 1:
		o.argv = s.trace.failing
	case 2:
		o.argv, o.bytes = s.trace.chatter, choice.IntN(1<<20)
	default:
		o.argv = s.trace.quick
	}
	if s.place(o) == nil && choice.IntN(10) == 0 {
		_ = l.hub.Ctl.Do(s.ctx, "POST", "/api/v1/tasks/"+o.id+"/kill", map[string]any{"reason": "not wanted any more"}, nil)
	}
}

// place gives an order once, as somebody at a terminal does, and remembers it when
// the hub has taken it. Where the answer is lost, it may have been taken.
func (s *soak) place(o *soakOrder) error {
	req := hub.SpawnRequest{ID: o.id, Spoke: o.link.spoke.Name, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: o.argv(o)}}
	err := o.link.hub.Ctl.Do(s.ctx, "POST", "/api/v1/tasks", req.Revealed(), nil)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.orders = append(s.orders, o)
	}
	return err
}

// taken lists the orders that a hub has taken.
func (s *soak) taken() []*soakOrder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*soakOrder(nil), s.orders...)
}

// ended waits until the hub says how an order ended. A hub that went back to a
// copy of its database may not know the order, and nobody else may have heard of
// it: it is given again, as its operator would.
func (s *soak) ended(o *soakOrder) error {
	return fleet.Poll(s.ctx, 2*time.Minute, "waiting for the end of "+o.String(), func() (bool, error) {
		err := o.link.hub.Ctl.Do(s.ctx, "GET", "/api/v1/tasks/"+o.id, nil, &o.view)
		switch commands.CodeOf(err) {
		case "":
			return o.view.State.Terminal(), nil
		case commands.NotFound:
			s.say("%s is not known any more, and is ordered again", o)
			req := hub.SpawnRequest{ID: o.id, Spoke: o.link.spoke.Name, Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: o.argv(o)}}
			err = o.link.hub.Ctl.Do(s.ctx, "POST", "/api/v1/tasks", req.Revealed(), nil)
		case commands.Unreachable, commands.StoreDown:
			err = nil
		}
		return false, err
	})
}

// told is what hub and spoke say about an order that does not end.
func (s *soak) told(o *soakOrder) []string {
	return []string{
		hand{t: s.t, dir: o.link.spoke.Dir}.run("", "why", o.id).out,
		hand{t: s.t, dir: o.link.hub.Hub.Dir}.run("", "status", o.id).out,
		hand{t: s.t, dir: o.link.hub.Hub.Dir}.run("", "audit", "list", o.id).out,
		hand{t: s.t, dir: o.link.spoke.Dir}.run("", "audit", "list", o.id).out,
		hand{t: s.t, dir: o.link.hub.Hub.Dir}.run("", "connections", "show", o.link.spoke.Name).out,
	}
}

func (s *soak) view(l *soakLink) (v hub.SpokeView, err error) {
	err = l.hub.Ctl.Do(s.ctx, "GET", "/api/v1/connections/"+url.PathEscape(l.spoke.Name), nil, &v)
	return v, err
}

// check compares what the hubs say with what the agents themselves left behind.
func (s *soak) check() {
	s.t.Helper()
	starts, ends := s.trace.counts(s.t)
	states := map[commands.State]int{}
	for _, o := range s.taken() {
		v := o.view
		states[v.State]++
		require.LessOrEqual(s.t, starts[o.id], 1, "%s ran twice", o)
		require.LessOrEqual(s.t, ends[o.id], 1, "%s ran twice", o)
		require.True(s.t, v.State == commands.Completed || v.Reason != "" || v.Result != nil || v.Refusal != nil, "%s is %s and nobody says why", o, v.State)
		if v.State == commands.Completed {
			require.Equal(s.t, 1, ends[o.id], "%s has completed, and its agent did not end", o)
			out := hand{t: s.t, dir: o.link.hub.Hub.Dir}.run("", "logs", "-f", o.id) // a hub that was restored has to ask for it
			require.Zero(s.t, out.code, "%s", out.err)
			requireAllOrMarked(s.t, o, out)
		}
	}
	s.say("%d orders: %v", len(s.taken()), states)
	require.NotZero(s.t, states[commands.Completed])
}

// marked is how a log says how much of a stream is not there; endless, that the
// rest is not, however much that is.
var (
	marked  = regexp.MustCompile(`(\d+) bytes from byte \d+ on (?:were dropped by|did not arrive before)`)
	endless = regexp.MustCompile(`the spoke has lost the rest|what came after byte|output that the hub had cannot be read`)
)

// requireAllOrMarked checks that each byte an agent wrote is in its log, or counted
// there as missing.
func requireAllOrMarked(t *testing.T, o *soakOrder, log said) {
	t.Helper()
	if endless.MatchString(log.err) {
		return
	}
	sum := strings.Count(log.out, "x") // where some were dropped, a line of the spoke's says so
	for _, m := range marked.FindAllStringSubmatch(log.err, -1) {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		sum += n
	}
	if strings.Contains(log.err, "did not arrive before") && !strings.Contains(log.out, "bytes dropped:") {
		r, _ := commands.ReadResult(o.view.Result)
		sum -= int(r.Stdout.Size - r.Stdout.Bytes + r.Stdout.Dropped) // the line that says so did not arrive either
	}
	require.Equal(t, o.bytes, sum, "the output of %s has %d bytes; marked: %s", o, len(log.out), log.err)
}
