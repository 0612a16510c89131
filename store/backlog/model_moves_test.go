package backlog_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

var (
	owners    = []string{"w1", "w2", "w3"}
	needs     = [][]string{nil, nil, {"go"}, {"go", "rust"}}
	skills    = [][]string{{"go", "rust"}, {"rust", "go", "c"}, {"go"}, nil}
	lanes     = []string{"", "fast"}
	laneLists = [][]string{nil, {"fast", "default"}, {"fast"}, {"default"}}
	farAhead  = time.Hour
)

// create adds a few tasks; some repeat what is there, some cannot be.
func (m *machine) create(rt *rapid.T) {
	var specs []backlog.TaskSpec
	for i := range rapid.IntRange(1, 4).Draw(rt, "how many") {
		specs = append(specs, m.spec(rt, i, specs))
	}
	want := m.createCode(specs)
	out, err := m.client(rt).Create(context.Background(), specs...)
	expect(rt, want, err)
	if want != "" {
		return
	}
	for i, s := range specs {
		known := m.ref.byName(s.Key)
		require.Equal(rt, known != nil, out[i].Existing)
		if known == nil {
			m.ref.add(s, out[i].ID)
		} else if require.Equal(rt, known.id, out[i].ID); known.state == commands.Blocked {
			m.ref.move(known, commands.Queued)
		}
	}
}

func (m *machine) spec(rt *rapid.T, i int, earlier []backlog.TaskSpec) backlog.TaskSpec {
	if len(m.ref.tasks) > 0 && i == 0 {
		switch rapid.IntRange(0, 9).Draw(rt, "new or not") {
		case 8:
			return m.task(rt, "the repeated").spec
		case 9:
			s := m.task(rt, "the clashing").spec
			s.Title += "!"
			return s
		}
	}
	m.names++
	s := backlog.TaskSpec{Key: fmt.Sprintf("k%d", m.names), Title: "t", Phase: []string{"", "build"}[m.names%2], Priority: rapid.IntRange(-1, 1).Draw(rt, "priority"),
		Lane: rapid.SampledFrom(lanes).Draw(rt, "lane"), Capabilities: rapid.SampledFrom(needs).Draw(rt, "needs"),
		MaxRetries: rapid.IntRange(0, 2).Draw(rt, "retries"), OnFailedDep: rapid.SampledFrom([]string{"", "hold", "cancel", "ignore"}).Draw(rt, "policy")}
	switch rapid.IntRange(0, 7).Draw(rt, "when") {
	case 6:
		s.NotBefore = time.Now().Add(-farAhead)
	case 7:
		s.NotBefore = time.Now().Add(farAhead)
	}
	for range rapid.IntRange(0, 2).Draw(rt, "dependencies") {
		switch {
		case rapid.IntRange(0, 19).Draw(rt, "unknown") == 19:
			s.DependsOn = append(s.DependsOn, "nobody")
		case len(earlier) > 0 && m.ref.byName(earlier[0].Key) == nil && rapid.Bool().Draw(rt, "on the one before"):
			s.DependsOn = append(s.DependsOn, earlier[0].Key)
		case len(m.ref.tasks) > 0:
			s.DependsOn = append(s.DependsOn, m.task(rt, "the dependency").called(rt))
		}
	}
	return s
}

// createCode is why the reference refuses a creation, in the order of looking.
func (m *machine) createCode(specs []backlog.TaskSpec) commands.Code {
	var code commands.Code
	for _, s := range specs {
		if known := m.ref.byName(s.Key); known != nil {
			if known.spec.Title != s.Title {
				return commands.Conflict
			}
			continue
		}
		for _, name := range s.DependsOn {
			on := m.ref.byName(name)
			switch {
			case name == "nobody":
				return commands.NotFound
			case on == nil: // the one before, of the same call
			case s.OnFailedDep == "cancel" && on.state.Terminal() && on.state != commands.Completed:
				code = commands.Conflict
			}
		}
	}
	return code
}

func (m *machine) link(rt *rapid.T) {
	from, to := m.task(rt, "from"), m.task(rt, "to")
	met, bad := from.meets(to)
	var want commands.Code
	switch {
	case from == to:
		want = commands.Cycle
	case from.state.Terminal() || from.held():
		want = commands.Conflict
	case to.depends(from):
		want = commands.Cycle
	case bad && from.policy() == "cancel":
		want = commands.Conflict
	}
	expect(rt, want, m.client(rt).Link(context.Background(), from.called(rt), to.called(rt)))
	if want == "" && !slices.ContainsFunc(from.edges, func(e refEdge) bool { return e.on == to }) {
		from.edges = append(from.edges, refEdge{to, met})
	}
}

func (m *machine) unlink(rt *rapid.T) {
	from, to := m.task(rt, "from"), m.task(rt, "to")
	if len(from.edges) > 0 && rapid.Bool().Draw(rt, "one that is there") {
		to = from.edges[rapid.IntRange(0, len(from.edges)-1).Draw(rt, "edge")].on
	}
	i := slices.IndexFunc(from.edges, func(e refEdge) bool { return e.on == to })
	err := m.client(rt).Unlink(context.Background(), from.called(rt), to.called(rt))
	if i < 0 {
		expect(rt, commands.NotFound, err)
		return
	}
	expect(rt, "", err)
	from.edges = slices.Delete(from.edges, i, i+1)
}

func terms(rt *rapid.T) backlog.ClaimTerms {
	return backlog.ClaimTerms{Owner: rapid.SampledFrom(owners).Draw(rt, "owner"), Capabilities: rapid.SampledFrom(skills).Draw(rt, "skills"),
		Lanes: rapid.SampledFrom(laneLists).Draw(rt, "lanes"), Limit: rapid.IntRange(1, 4).Draw(rt, "limit"), Lease: farAhead}
}

// claim checks that a claimer gets as many as there are for it, and of each lane
// the first ones.
func (m *machine) claim(rt *rapid.T) {
	c := terms(rt)
	may := m.ref.admissible(c)
	got, err := m.client(rt).Claim(context.Background(), c)
	require.NoError(rt, err)
	require.Len(rt, got, min(c.Limit, len(may)))
	first := map[string][]string{} // by lane, in the order of claiming
	for _, t := range may {
		first[t.lane()] = append(first[t.lane()], t.id)
	}
	given := map[string][]string{}
	for _, g := range got {
		given[g.Lane] = append(given[g.Lane], g.Fence.Task)
	}
	for lane, ids := range given {
		require.LessOrEqual(rt, len(ids), len(first[lane]), "lane %s", lane)
		require.Equal(rt, first[lane][:len(ids)], ids, "lane %s", lane)
	}
	for _, g := range got {
		m.take(rt, c, g)
	}
}

func (m *machine) take(rt *rapid.T, c backlog.ClaimTerms, g backlog.Claimed) {
	t := m.ref.byID(g.Fence.Task)
	require.Equal(rt, t.nextType, g.Type)
	t.claim(c.Owner)
	require.Equal(rt, t.fence(), g.Fence)
	m.fences = append(m.fences, g.Fence)
}

func (m *machine) claimOne(rt *rapid.T) {
	t, c := m.task(rt, "the wanted"), terms(rt)
	c.Task = t.called(rt)
	var want commands.Code
	switch {
	case slices.Contains(m.ref.admissible(c), t):
	case !capable(c, t):
		want = commands.Capability
	default:
		want = commands.Conflict
	}
	got, err := m.client(rt).Claim(context.Background(), c)
	expect(rt, want, err)
	if want == "" {
		require.Len(rt, got, 1)
		require.Equal(rt, t.id, got[0].Fence.Task)
		m.take(rt, c, got[0])
	}
}

func (m *machine) held() (list []*refTask) {
	for _, t := range m.ref.tasks {
		if t.held() {
			list = append(list, t)
		}
	}
	return list
}

func (m *machine) heldOne(rt *rapid.T) *refTask {
	list := m.held()
	if len(list) == 0 {
		rt.Skip("nobody holds anything")
	}
	return list[rapid.IntRange(0, len(list)-1).Draw(rt, "the held")]
}

// fence draws one: of somebody who holds a task, or of one who did, and one in
// two is not quite right.
func (m *machine) fence(rt *rapid.T) backlog.Fence {
	given := m.fences
	if len(given) == 0 {
		rt.Skip("nothing was claimed yet") // before any draw: rapid then chooses another action
	}
	if held := m.held(); len(held) > 0 && rapid.IntRange(0, 2).Draw(rt, "held or not") < 2 {
		given = nil
		for _, t := range held {
			given = append(given, t.fence())
		}
	}
	f := rapid.SampledFrom(given).Draw(rt, "fence")
	off := rapid.SampledFrom([]int{-1, 1}).Draw(rt, "off by")
	switch rapid.IntRange(0, 7).Draw(rt, "what is wrong") {
	case 4:
		f.Epoch += int64(off)
	case 5:
		f.Attempt = max(1, f.Attempt+off)
	case 6:
		f.Task = m.task(rt, "another").id
	case 7:
		f.Task = storetest.NewID()
	}
	return f
}

func (m *machine) renew(rt *rapid.T) {
	f := m.fence(rt)
	t := m.ref.byID(f.Task)
	want := commands.StaleAttempt
	switch {
	case t == nil:
		want = commands.NotFound
	case t.held() && t.fence() == f:
		want = ""
	}
	until, err := m.client(rt).Renew(context.Background(), f, farAhead)
	expect(rt, want, err)
	if want == "" {
		require.Greater(rt, time.Until(until), farAhead/2)
		t.lapsed = false
	}
}

// staleActs tries every act of a worker on a task that is held, with fences that are
// nearly right: the holder's, but for one number.
func (m *machine) staleActs(rt *rapid.T) {
	t := m.heldOne(rt)
	b := m.client(rt)
	off := rapid.SampledFrom([]int{-1, 1}).Draw(rt, "off by")
	later, other := t.fence(), t.fence()
	later.Epoch += int64(off)
	other.Attempt += off
	for _, f := range []backlog.Fence{later, other} {
		_, err := b.Renew(context.Background(), f, farAhead)
		expect(rt, commands.StaleAttempt, err)
		for name, v := range verbs {
			if v.fenced {
				_, err := v.act(b, context.Background(), backlog.Act{Fence: &f})
				require.Equal(rt, commands.StaleAttempt, commands.CodeOf(err), "%s with %s: %v", name, f, err)
			}
		}
	}
}

// lapse lets a lease run out.
func (m *machine) lapse(rt *rapid.T) {
	t := m.heldOne(rt)
	require.NoError(rt, m.Exec(`UPDATE leases SET (until, sweep_at) = (clock_timestamp() - interval '1 second', '-infinity') WHERE task = $1`, t.id))
	t.lapsed = true
}

func (m *machine) sweep(rt *rapid.T) {
	swept, err := m.client(rt).Sweep(context.Background())
	require.NoError(rt, err)
	require.Equal(rt, len(m.ref.sweep()), swept.Reclaimed)
}

func (m *machine) reclaimAll(rt *rapid.T) {
	got, err := m.client(rt).Reclaim(context.Background(), "")
	require.NoError(rt, err)
	require.ElementsMatch(rt, m.ref.sweep(), namesOf(got, func(t backlog.Task) string { return t.ID }))
}

// ripen lets the time come for which tasks wait.
func (m *machine) ripen(rt *rapid.T) {
	for _, sql := range []string{`UPDATE due SET at = now() - interval '1 second' WHERE workspace = $1`,
		`UPDATE tasks SET not_before = (SELECT at FROM due WHERE task = id) WHERE workspace = $1 AND id IN (SELECT task FROM due)`,
		`UPDATE tasks SET not_before = now() - interval '1 second' WHERE workspace = $1 AND not_before > now()`} {
		require.NoError(rt, m.Exec(sql, m.space))
	}
	_, err := m.client(rt).Sweep(context.Background())
	require.NoError(rt, err)
	m.ref.sweep()
	m.ref.ripen()
}
