package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// However often an agent is to be killed, its mirror keeps the first 100 orders, and each is sent.
func TestAMirrorKeepsTheFirst100Kills(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	kill := func(reason string) {
		t.Helper()
		sent, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: task, Reason: reason}, time.Hour, "test")
		require.NoError(t, err)
		require.True(t, sent)
	}
	kill("the first")
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET kill = kill || (SELECT jsonb_agg(m.kill->0) FROM mirrors m, generate_series(1, 98) WHERE m.task = $1) WHERE task = $1`, task))
	require.Equal(t, 99, p.Hub.Count(t, `SELECT jsonb_array_length(kill) FROM mirrors WHERE task = $1`, task))

	for range 3 {
		kill("one more")
	}

	require.Equal(t, 100, p.Hub.Count(t, `SELECT jsonb_array_length(kill) FROM mirrors WHERE task = $1`, task))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM mirrors, jsonb_array_elements(kill) AS k WHERE task = $1 AND k->>'reason' = 'one more'`, task))
	require.Equal(t, 4, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE task = $1 AND kind = 'agent.kill'`, task))
}

// A kill that its spoke refuses ends nothing: it is said, it may be given again, and nothing waits for it.
func TestAKillThatIsRefusedEndsNothing(t *testing.T) {
	t.Parallel()
	const now, after = commands.CancelNow, commands.CancelAfter
	for name, tt := range map[string]struct {
		orders   []string // what each cancel is; "" = a kill
		refused  int      // so many of the first
		left     string   // the reason of the one that stands
		killable bool
		limited  bool // it has a last moment
	}{
		"a kill":                            {[]string{""}, 1, "", true, false},
		"a cancel":                          {[]string{now}, 1, "", true, false},
		"a kill, and another stands":        {[]string{"", ""}, 1, "b", false, true},
		"a kill, and a cancel stands":       {[]string{"", now}, 1, "b", true, true},
		"a kill, and what runs may finish":  {[]string{"", after}, 1, "b", true, false},
		"two kills":                         {[]string{"", ""}, 2, "", true, false},
		"none":                              {[]string{""}, 0, "a", false, true},
		"none, of one that lets run finish": {[]string{after}, 0, "a", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, tasks := newPausing(t, 1)
			for i, cancel := range tt.orders {
				_, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: tasks[0], Reason: string(rune('a' + i)), Cancel: cancel}, time.Hour, "ann")
				require.NoError(t, err)
			}
			p.got = p.Spoke.Read(p, p.Hub.Due(p)...)
			require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET accepted_at = now(), state = 'running'`))

			p.hear(p.answer(tt.refused, true))

			m := p.Mirror(t, tasks[0])
			if tt.left == "" {
				require.Nil(t, m.Kill)
			} else {
				require.Equal(t, tt.left, store.ReadKill(m.Kill).Reason)
			}
			if last := store.ReadKill(m.RefusedKill); tt.refused < len(tt.orders) {
				require.Nil(t, last)
			} else {
				require.Equal(t, []any{string(rune('a' + tt.refused - 1)), commands.Code(commands.Conflict), "it was cancelled"}, []any{last.Reason, last.Code, last.Why})
			}
			list, err := p.Hub.DB.Killable(t.Context(), store.MirrorTerms{})
			require.NoError(t, err)
			require.Equal(t, tt.killable, len(list) == 1)
			require.Equal(t, tt.refused, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action LIKE 'task.%_refused' AND object = $1 AND code = 'CONFLICT' AND conn = $2`, tasks[0], p.Hub.Conn.ID))
			require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET kill_expires_at = kill_expires_at - interval '3 hours'`))
			ended, err := p.Hub.DB.EndUnanswered(t.Context())
			require.NoError(t, err)
			require.Equal(t, tt.limited, len(ended) == 1)
		})
	}
}

// Kills that were refused leave room for those that are not.
func TestRefusedKillsLeaveRoom(t *testing.T) {
	t.Parallel()
	p, tasks := newPausing(t, 1)
	order := func(reason string) {
		_, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: tasks[0], Reason: reason}, time.Hour, "ann")
		require.NoError(t, err)
	}
	order("a")
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET kill = (SELECT jsonb_agg(m.kill->0 || '{"state": "refused"}') FROM mirrors m, generate_series(1, 100))`))

	order("b")

	require.Equal(t, "b", store.ReadKill(p.Mirror(t, tasks[0]).Kill).Reason)
}

// What its hub alone has ended may run on its spoke, and is killed there, until its connection has ended: then nobody can be told.
func TestWhatItsHubAloneHasEndedIsKilled(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'expired', reason = 'command_expired', ended_at = now()`))
	for _, ended := range []bool{false, true} {
		if ended {
			_, err := p.Hub.DB.SetConnectionState(t.Context(), p.Hub.Conn.ID, store.Revoked, "enough", "test", nil)
			require.NoError(t, err)
		}

		got, err := p.Hub.DB.OrderKills(t.Context(), []string{task}, commands.Kill{Reason: "enough"}, time.Hour, "test")

		require.NoError(t, err)
		require.Equal(t, []store.KillOrdered{{Task: task, Spoke: "attic", Sent: !ended}}, got)
		require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.kill_ordered'`))
		require.Equal(t, 1, p.Hub.Count(t, `SELECT jsonb_array_length(kill) FROM mirrors`))
	}
}

// What ends while its kill is being ordered has ended: the kill waits for the end, and is none.
func TestAKillWaitsForAnEndThatIsUnderWay(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	other, err := pgx.Connect(t.Context(), p.Hub.URL)
	require.NoError(t, err)
	defer other.Close(t.Context())
	end, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = end.Exec(t.Context(), `UPDATE mirrors SET state = 'completed', ended_at = now()`)
	require.NoError(t, err)
	type answer struct {
		sent bool
		err  error
	}
	answers := make(chan answer, 1)

	go func() {
		sent, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: task, Reason: "enough"}, time.Hour, "test")
		answers <- answer{sent, err}
	}()

	require.Eventually(t, func() bool { return p.Hub.Count(t, locksAwaited) == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, end.Commit(t.Context()))
	require.Equal(t, answer{}, <-answers)
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.kill_ordered'`))
}
