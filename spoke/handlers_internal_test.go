package spoke

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An order that this host cannot judge comes again, for a minute. One that is known is answered all the same: it was allowed in its time.
func TestAKnownOrderWaitsForNoFaultOfTheHost(t *testing.T) {
	t.Parallel()
	p, s, judge := withoutFiles(t)
	for task, later := range map[string]bool{askedFor(t, p, s.backlog): false, storetest.NewID(): true} {
		m, refused := judge(task)

		require.Equal(t, later, m.Later != nil)
		require.Equal(t, later, refused != nil)
		s.left.leave(m.Conn, m.Header.ID, task, time.Now())
		judge(task)
		require.Equal(t, later, s.left.since[m.Conn][m.Header.ID] != leftOrder{}, "what is known is left no more")
	}
}

// What its rules refuse waits for no fault of the host: they are known.
func TestWhatRulesRefuseWaitsForNoFaultOfTheHost(t *testing.T) {
	t.Parallel()
	_, s, judge := withoutFiles(t)
	m, _ := judge(storetest.NewID())
	m.Later, m.Body = nil, &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeNoop}
	rules, err := policy.Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\n"))
	require.NoError(t, err)

	refused := s.judgeNamed(t.Context(), m, rules, outOfFiles(rules))

	require.NoError(t, m.Later)
	require.Equal(t, commands.Policy, refused.Code)
}

// How long an order waits for its host is what the manual says of it.
func TestAnOrderThatCannotBeJudgedWaitsAsLongAsIsSaid(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, []any{time.Minute, 1024}, []any{leaveFor, maxLeft})
	manual, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	require.True(t, strings.Contains(string(manual), "and comes again. After a minute it is refused with `CAPABILITY`; one with `--any` then goes to another spoke. It is refused at once where it expires within that minute, and where 1,024 orders of its connection are left already."))
}

// outOfFiles is what an order names on a host that has no open files left.
func outOfFiles(rules *policy.Policy) *policy.Named {
	n := named(rules)
	n.Fault = &supervisor.StartError{Reason: supervisor.NoResources, Text: "too many open files"}
	return n
}

// named is what an order of "true" names.
func named(rules *policy.Policy) *policy.Named {
	return rules.OpenNamed(&commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"true"}})
}

// withoutFiles is a spoke whose host has no open files left, and how that judges an order of a task.
func withoutFiles(t *testing.T) (p *storetest.Pair, s *Spoke, judge func(task string) (*store.Incoming, *commands.Refused)) {
	t.Helper()
	p = storetest.NewPair(t)
	s, _ = liveRun()
	s.DB, s.backlog = p.Spoke.DB, Backlog(p.Spoke.DB, t.TempDir())
	rules, err := policy.Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\n"))
	require.NoError(t, err)
	return p, s, func(task string) (*store.Incoming, *commands.Refused) {
		m := &store.Incoming{Conn: p.Spoke.Conn.ID, Header: signing.Header{ID: "of " + task, Exp: time.Now().Add(time.Hour).UnixMilli()}, Policy: rules.ID(), Body: &commands.Spawn{Task: task, Runtime: commands.RuntimeExec, Argv: []string{"true"}}}
		return m, s.judgeNamed(t.Context(), m, rules, outOfFiles(rules))
	}
}

// Then it is refused with what another spoke may not share, and its audit says by which fault. What is remembered is bounded for each hub.
func TestAnOrderThatCannotBeJudgedIsLeftForAWhile(t *testing.T) {
	t.Parallel()
	p, s, judge := withoutFiles(t)
	task, conn := storetest.NewID(), p.Spoke.Conn.ID
	now := time.Now()
	require.True(t, s.left.leave(conn, "of "+task, task, now.Add(-leaveFor)))

	m, refused := judge(task)

	require.NoError(t, m.Later)
	require.Equal(t, commands.Capability, refused.Code, "no policy has decided")
	require.NotContains(t, refused.Why, "files")
	require.Equal(t, "too many open files", m.Aside)
	require.Empty(t, m.Policy, "none has decided")

	for i := range maxLeft {
		require.True(t, s.left.leave(conn, strconv.Itoa(i), "", now), "one that was refused counts no more")
	}
	require.False(t, s.left.leave(conn, "one more", "", now))
	require.True(t, s.left.leave("another hub", "one more", "", now))
	later := now
	for i := maxLeft; i < maxKept-1; i++ {
		if i%maxLeft == 0 {
			later = later.Add(leaveFor)
		}
		require.True(t, s.left.leave(conn, strconv.Itoa(i), "", later), "those before are left no more")
	}
	later = later.Add(leaveFor)
	require.False(t, s.left.leave(conn, "one more", "", later), "no more is remembered")
	require.False(t, s.left.leave(conn, "0", "", later), "it was refused")
	require.True(t, s.left.leave(conn, "one more", "", now.Add(3*leftFor)), "the others come no more")
}

// Its hub is told so while it is left, and of no task of another hub. How long that may be counts before it expires, too.
func TestAnOrderThatIsLeftIsToldToItsHub(t *testing.T) {
	t.Parallel()
	p, s, judge := withoutFiles(t)
	s.left.most = 2 * time.Hour
	task, conn := storetest.NewID(), p.Spoke.Conn.ID
	m, _ := judge(task)
	require.NoError(t, m.Later, "it expires in an hour")
	s.left.most = leaveFor
	ask := func(conn string) *store.Incoming {
		q := &store.Incoming{Conn: conn, Body: &commands.Status{Task: task}}
		require.Nil(t, s.judge(t.Context(), q))
		return q
	}
	require.False(t, ask(conn).Left)

	m, _ = judge(task)

	require.Error(t, m.Later)
	q := ask(conn)
	require.True(t, q.Left)
	require.Len(t, q.Reasons, 1)
	require.Equal(t, []any{commands.CauseHost, leaveFor.Milliseconds()}, []any{q.Reasons[0].Code, q.Reasons[0].Until - q.Reasons[0].Since})
	require.NotContains(t, q.Reasons[0].Text, "files", "no hub learns which fault it is")
	require.False(t, ask(storetest.NewID()).Left)
	s.left.most = time.Nanosecond
	m, _ = judge(task)
	require.NoError(t, m.Later)
	require.False(t, ask(conn).Left, "it is refused")
}

// What is judged after all counts no more, and what expires before the minute is over is not left.
func TestAnOrderThatIsJudgedIsLeftNoMore(t *testing.T) {
	t.Parallel()
	p, s, _ := withoutFiles(t)
	rules, err := policy.Parse([]byte("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\n"))
	require.NoError(t, err)
	fault := outOfFiles(rules)
	m := func(exp time.Duration) *store.Incoming {
		return &store.Incoming{Conn: p.Spoke.Conn.ID, Header: signing.Header{ID: "an order", Exp: time.Now().Add(exp).UnixMilli()}, Body: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"true"}}}
	}
	first := m(time.Hour)
	require.NotNil(t, s.judgeNamed(t.Context(), first, rules, fault))
	require.Error(t, first.Later)
	require.Len(t, s.left.since[p.Spoke.Conn.ID], 1)

	require.Nil(t, s.judgeNamed(t.Context(), m(time.Hour), rules, named(rules)))

	require.Empty(t, s.left.since[p.Spoke.Conn.ID])
	soon := m(leaveFor / 2)
	require.NotNil(t, s.judgeNamed(t.Context(), soon, rules, fault))
	require.NoError(t, soon.Later)
}

// One that its hub has killed meanwhile is answered so.
func TestAKilledOrderWaitsForNoFaultOfTheHost(t *testing.T) {
	t.Parallel()
	p, s, judge := withoutFiles(t)
	killed := storetest.NewID()
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "killing", func(ctx context.Context, tx *store.Tx) error {
		_, err := s.backlog.NoteKill(ctx, tx, backlog.Kill{Conn: p.Spoke.Conn.ID, Asked: backlog.Asked{Command: storetest.NewID(), Digest: strings.Repeat("ab", 32)},
			Task: killed, Reason: "enough", Expires: time.Now().Add(time.Hour), Actor: "hub"})
		return err
	}))

	m, refused := judge(killed)

	require.NoError(t, m.Later)
	require.Nil(t, refused, "the transaction finds the kill")
}
