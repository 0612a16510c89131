package backlog_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// Whatever several clients do to a backlog in whatever order, with fences that
// hold, that no longer do and that never did: it does what the reference model
// does, refuses what that refuses, and stays consistent.
func TestModelOfTheBacklog(t *testing.T) {
	t.Parallel()
	storetest.Histories(8, 80)
	var s *side
	var second *side
	n := -1
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n%25 == 0 { // a workspace for each history, and not too many of them in a database
			if s != nil {
				s.DB.Close()
				second.DB.Close()
			}
			s = newSide(t)
			second = openSide(t, s.URL, 2)
		}
		m := newMachine(rt, s, second, fmt.Sprintf("check-%d", n))
		if rapid.Bool().Draw(rt, "with a limit") { // a limit that binds nothing, but claims go another way
			require.NoError(rt, m.clients[0].SetBudget(context.Background(), ample))
		}
		m.create(rt)
		m.create(rt)
		rt.Repeat(m.actions())
		requireInvariants(rt, s.URL)
	})
}

// ample is a budget that nobody will spend.
var ample = backlog.Budget{Name: "ample", Scope: "workspace", Dimension: "spawns", Hard: 1_000_000 * backlog.Unit}

// machine drives a workspace and the reference side by side.
type machine struct {
	*side
	clients []*backlog.Workspace
	foreign *backlog.Workspace // of another workspace
	space   string
	ref     reference
	fences  []backlog.Fence // every one that was handed out
	names   int
}

func newMachine(rt *rapid.T, s, second *side, space string) *machine {
	open := func(s *side, space, actor string) *backlog.Workspace {
		b, err := s.backlog.Workspace(space, actor)
		require.NoError(rt, err)
		return b
	}
	_, err := s.backlog.Sweep(context.Background(), time.Hour) // what the history before has left behind
	require.NoError(rt, err)
	return &machine{side: s, space: space, foreign: open(s, "elsewhere", "eve"),
		clients: []*backlog.Workspace{open(s, space, "ann"), open(s, space, "bob"), open(second, space, "cid")}}
}

func (m *machine) actions() map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){"": m.agree, "create": m.create, "link": m.link, "unlink": m.unlink, "claim": m.claim, "claim one": m.claimOne,
		"renew": m.renew, "lapse": m.lapse, "sweep": m.sweep, "ripen": m.ripen, "unblock": m.unblock, "retry": m.retry, "reclaim": m.reclaim,
		"reclaim all": m.reclaimAll, "list": m.list, "stale acts": m.staleActs, "by hand": m.byHand}
	for name, v := range verbs {
		if v.fenced {
			all[name+" by fence"] = func(rt *rapid.T) { m.byFence(rt, v) }
		}
	}
	// What makes work comes oftener than what ends it.
	all["create more"], all["claim more"], all["claim even more"], all["link more"] = m.create, m.claim, m.claim, m.link
	return all
}

func (m *machine) client(rt *rapid.T) *backlog.Workspace {
	return m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(rt, "client")]
}

func (m *machine) task(rt *rapid.T, what string) *refTask {
	if len(m.ref.tasks) == 0 {
		rt.Skip("no tasks yet")
	}
	return m.ref.tasks[rapid.IntRange(0, len(m.ref.tasks)-1).Draw(rt, what)]
}

// called is one of the names that a task goes by.
func (t *refTask) called(rt *rapid.T) string {
	return rapid.SampledFrom([]string{t.spec.Key, t.id}).Draw(rt, "called")
}

// expect fails unless the error has the code that the reference wants.
func expect(rt *rapid.T, want commands.Code, err error) {
	if want == "" {
		require.NoError(rt, err)
		return
	}
	require.Error(rt, err, "the reference refuses it with %s", want)
	require.Equal(rt, want, commands.CodeOf(err), "%v", err)
}

// agree compares everything that List and Stats show with the reference.
func (m *machine) agree(rt *rapid.T) {
	ctx := context.Background()
	b := m.clients[len(m.fences)%len(m.clients)]
	list, err := b.List(ctx, backlog.Filter{Limit: 1000})
	require.NoError(rt, err)
	require.Len(rt, list, len(m.ref.tasks))
	for i, got := range list {
		m.same(rt, m.ref.tasks[len(list)-1-i], got)
	}
	m.sameReady(rt, b)
	m.sameStats(rt, b)
}

func (m *machine) same(rt *rapid.T, want *refTask, got backlog.Task) {
	type view struct {
		ID, Key, Lane, Owner, Policy  string
		State                         commands.State
		Status                        backlog.BoardStatus
		Eligibility                   backlog.Eligibility
		Priority, Unmet               int
		Attempts, Retries, MaxRetries int
		Later, Ended, Leased, InVain  bool
		DependsOn, Capabilities       string
	}
	owner, needs := "", []string{}
	if want.held() {
		owner = want.attempts[len(want.attempts)-1].owner
	}
	for _, t := range m.ref.tasks {
		if slices.ContainsFunc(want.edges, func(e refEdge) bool { return e.on == t }) {
			needs = append(needs, t.spec.Key)
		}
	}
	later := want.eligibility() == backlog.NotBefore
	require.Equal(rt, view{want.id, want.spec.Key, want.lane(), owner, want.policy(), want.state, backlog.BoardStatusOf(want.state), want.eligibility(),
		want.spec.Priority, want.unmet(), len(want.attempts), want.retries, want.spec.MaxRetries, later, want.state.Terminal(), want.held(), want.state == commands.Queued && want.inVain(),
		strings.Join(needs, " "), strings.Join(want.spec.Capabilities, " ")},
		view{got.ID, got.Key, got.Lane, got.Owner, got.OnFailedDep, got.State, got.Status, got.Eligibility,
			got.Priority, got.Unmet, got.Attempts, got.Retries, got.MaxRetries, later && got.NotBefore != nil, got.EndedAt != nil, got.LeaseUntil != nil, got.State == commands.Queued && got.Reason == commands.DependencyFailed,
			strings.Join(got.DependsOn, " "), strings.Join(got.Capabilities, " ")})
}

func (m *machine) sameReady(rt *rapid.T, b *backlog.Workspace) {
	list, err := b.List(context.Background(), backlog.Filter{ReadyOnly: true, Limit: 1000})
	require.NoError(rt, err)
	require.Equal(rt, namesOf(m.ref.ready(), func(t *refTask) string { return t.id }), namesOf(list, func(t backlog.Task) string { return t.ID }), "what is ready, in the order of claiming")
}

func namesOf[T any](list []T, name func(T) string) []string {
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = name(t)
	}
	return names
}

func (m *machine) sameStats(rt *rapid.T, b *backlog.Workspace) {
	got, err := b.Stats(context.Background())
	require.NoError(rt, err)
	states := map[commands.State]int64{}
	columns := map[backlog.BoardStatus]int64{backlog.BoardReady: 0, backlog.BoardClaimed: 0, backlog.BoardBlocked: 0, backlog.BoardDone: 0}
	lapsed, unsuccessful := int64(0), int64(0)
	for _, t := range m.ref.tasks {
		states[t.state]++
		if t.state.Terminal() && t.state != commands.Completed {
			unsuccessful++
		} else {
			columns[backlog.BoardStatusOf(t.state)]++
		}
		if t.held() && t.lapsed {
			lapsed++
		}
	}
	ready := m.ref.ready()
	require.Equal(rt, states, got.States)
	require.Equal(rt, columns, got.Status)
	require.Equal(rt, unsuccessful, got.Unsuccessful)
	require.Equal(rt, int64(len(ready)), got.Claimable)
	require.Equal(rt, lapsed, got.ExpiredClaims)
	require.Equal(rt, len(ready) > 0, got.OldestReady != nil)
}

// list asks for a part of the board.
func (m *machine) list(rt *rapid.T) {
	f := backlog.Filter{Limit: 1000}
	keep := map[string]func(*refTask) bool{
		"by status": func(t *refTask) bool { return backlog.BoardStatusOf(t.state) == f.Status },
		"by state":  func(t *refTask) bool { return t.state == f.State },
		"by lane":   func(t *refTask) bool { return t.lane() == f.Lane },
		"by owner":  func(t *refTask) bool { return t.held() && t.attempts[len(t.attempts)-1].owner == f.Owner },
	}
	how := rapid.SampledFrom(slices.Sorted(maps.Keys(keep))).Draw(rt, "how")
	switch how {
	case "by status":
		f.Status = rapid.SampledFrom([]backlog.BoardStatus{backlog.BoardReady, backlog.BoardClaimed, backlog.BoardBlocked, backlog.BoardDone}).Draw(rt, "status")
	case "by state":
		f.State = rapid.SampledFrom(commands.States).Draw(rt, "state")
	case "by lane":
		f.Lane = rapid.SampledFrom([]string{"default", "fast", "none"}).Draw(rt, "lane")
	case "by owner":
		f.Owner = rapid.SampledFrom(owners).Draw(rt, "owner")
	}
	want := []string{}
	for _, t := range slices.Backward(m.ref.tasks) {
		if keep[how](t) {
			want = append(want, t.id)
		}
	}
	list, err := m.client(rt).List(context.Background(), f)
	require.NoError(rt, err)
	require.Equal(rt, want, namesOf(list, func(t backlog.Task) string { return t.ID }))
}
