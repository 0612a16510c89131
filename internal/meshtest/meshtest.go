// Package meshtest runs a hub and some spokes in one process for tests.
//
// Nothing in a mesh is pretended: every instance is a real [hub.Hub] or
// [spoke.Spoke] with keys, a data directory and a Postgres database of its own,
// joined through the real handshake, and every spoke dials its hub through a
// [Proxy] that can break the connection in all the ways a network can. An
// [Attacker] holds the real keys of a spoke, a [Rogue] those of a hub, and both
// may say anything over the real link.
//
// What a test starts ends with it, in order: spokes with their proxies, what
// their agents left running, the hub, the databases. [Mesh.Stop] and [Mesh.Start]
// end and start one instance in between; its keys, its data directory and its
// database stay. The methods belong to the test's own goroutine, as those of
// [testing.T] do; they fail the test and do not return errors.
package meshtest

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/output"
	"github.com/spawnmesh/spawnmesh/internal/listener"
	"github.com/spawnmesh/spawnmesh/internal/node"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// Patience is how long this package waits for what must happen. It is the
// patience of a busy machine; nothing takes that long.
const Patience = time.Minute

// Main runs the tests of a package that uses this one: its TestMain is this
// call. Their program is that of the shims, too, that agents run under.
func Main(m *testing.M) {
	pgtest.Main(m)
}

// A Plan says how the spokes of a mesh work. The zero value is the usual plan.
type Plan struct {
	Hub      string           // what the hub calls itself; default "lab"
	Policy   string           // of every spoke, as a file; default: the preset "open", made [Loose]
	Passable bool             // the data directories of spokes can be got to by other users
	Slots    int              // agents at a time; default 4
	Interval time.Duration    // of heartbeats; default 200 ms
	Answers  time.Duration    // of the hub's own heartbeats, and of what it tells again; default as in the product
	Lease    time.Duration    // of claims; default 10 s
	Idle     time.Duration    // between two tries of a spoke to claim what was not to be had; default as in the product
	Quiet    time.Duration    // how long hub and spokes look at nothing that nobody says has changed; default as in the product
	HoldFor  time.Duration    // how long spokes wait over a new link for controls of the hub; default as in the product
	Hung     time.Duration    // how long an agent may show no sign; default 10 min
	Overrun  time.Duration    // how long an agent may run beyond its estimate, and then without progress; default as in the product
	LeaveFor time.Duration    // how long spokes leave an order that they cannot judge; default as in the product
	StillFor time.Duration    // how long a queue may stand still; default 45 s
	Output   output.Bounds    // of what the hub keeps of agents' output
	Demands  string           // what the hub demands that agents are confined by; default: nothing
	Rate     node.Rate        // of what the hub takes from each spoke; default as in the product
	API      *listener.Config // where the hub serves its API to other programs; default: nowhere
}

// A Mesh is a hub and its spokes.
type Mesh struct {
	Hub    *Hub
	Spokes map[string]*Spoke // by the name they joined under
	plan   Plan
	ways   []*Proxy // to the hub
}

// A Hub is the hub of a mesh.
type Hub struct {
	*Instance
	Link    string // host:port of its link in its present life
	bounds  output.Bounds
	still   time.Duration
	hung    time.Duration
	quiet   time.Duration
	answers time.Duration
	rate    node.Rate
	demands string // of isolation
	name    string // that it gives itself
	API     string // URL of its API for other programs in its present life
	serves  *listener.Config
}

// A Spoke is a spoke of a mesh, running or not.
type Spoke struct {
	*Instance
	Proxy *Proxy // its way to the hub
	Conn  string // id of its connection
	plan  Plan
}

// Start makes a mesh of the usual plan: a hub, and a linked spoke per name.
func Start(t testing.TB, names ...string) *Mesh {
	t.Helper()
	return Plan{}.Start(t, names...)
}

// Start makes a mesh of plan p: a hub, and a linked spoke per name.
func (p Plan) Start(t testing.TB, names ...string) *Mesh {
	t.Helper()
	m := &Mesh{Hub: &Hub{Instance: newInstance(t, "hub"), bounds: p.Output, still: p.StillFor, hung: p.Hung, quiet: p.Quiet, answers: p.Answers, rate: p.Rate, demands: p.Demands, name: cmp.Or(p.Hub, "lab"), serves: p.API}, Spokes: map[string]*Spoke{}, plan: p}
	m.Start(t, "hub")
	for _, name := range names {
		m.Add(t, name)
	}
	return m
}

// Add lets one more spoke join, starts it and waits until it is linked.
func (m *Mesh) Add(t testing.TB, name string) *Spoke {
	t.Helper()
	s := m.Join(t, name)
	m.Start(t, name)
	m.AwaitLink(t, name)
	return s
}

// Join lets one more spoke join and does not start it.
func (m *Mesh) Join(t testing.TB, name string) *Spoke {
	t.Helper()
	s := m.newSpoke(t, name)
	joined, err := s.JoinWith(t, m.Token(t, name, s.Proxy))
	require.NoError(t, err, "joining as %s", name)
	s.Conn = joined.Connection.ID
	m.Spokes[name] = s
	return s
}

// Newcomer makes an instance that has joined nothing yet, with a proxy to the
// hub in front of it.
func (m *Mesh) Newcomer(t testing.TB, name string) *Spoke {
	t.Helper()
	return m.newSpoke(t, name)
}

// Loose is a policy whose agents have the user of their spoke: they use what a test has
// made for them, wherever it is.
func Loose(policy string) string { return policy + "isolation: none\nallow_root_agents: true\n" }

func (m *Mesh) newSpoke(t testing.TB, name string) *Spoke {
	t.Helper()
	s := &Spoke{Instance: newInstance(t, name), Proxy: NewProxy(t, m.Hub.Link), plan: m.plan}
	require.NoError(t, os.WriteFile(policy.File(s.Dir), []byte(cmp.Or(m.plan.Policy, Loose(policy.Presets["open"]))), 0o600))
	if m.plan.Passable {
		require.NoError(t, os.Chmod(filepath.Dir(s.Dir), 0o711))
	}
	m.ways = append(m.ways, s.Proxy)
	return s
}

// Invite asks the hub for an invitation, as its operator does.
func (m *Mesh) Invite(t testing.TB, name string) hub.Invitation {
	t.Helper()
	var v hub.Invitation
	m.Hub.Do(t, "POST", "/api/v1/invites", map[string]string{"name": name}, &v)
	return v
}

// Token makes a join token that leads through proxy.
func (m *Mesh) Token(t testing.TB, name string, proxy *Proxy) join.Token {
	t.Helper()
	token, err := join.ParseToken(m.Invite(t, name).Token)
	require.NoError(t, err)
	token.Address = proxy.Addr()
	return token
}

// JoinWith runs the handshake of a spoke with a token.
func (s *Spoke) JoinWith(t testing.TB, token join.Token) (spoke.Joined, error) {
	t.Helper()
	db := s.Open(t)
	defer db.Close()
	ctx, done := withPatience(t)
	defer done()
	return spoke.Join(ctx, db, s.Keys, token)
}

// Start starts the hub or a spoke, for the first time or once more, and waits
// until it serves.
func (m *Mesh) Start(t testing.TB, name string) {
	t.Helper()
	if name != "hub" {
		m.Spokes[name].start(t)
		return
	}
	m.Hub.start(t)
	for _, p := range m.ways {
		p.Target(m.Hub.Link)
	}
}

// Stop ends the hub or a spoke as a signal would, and waits for it. Agents that
// run go on.
func (m *Mesh) Stop(t testing.TB, name string) {
	t.Helper()
	m.instance(t, name).stop(t)
}

func (m *Mesh) instance(t testing.TB, name string) *Instance {
	t.Helper()
	if name == "hub" {
		return m.Hub.Instance
	}
	require.Contains(t, m.Spokes, name)
	return m.Spokes[name].Instance
}
