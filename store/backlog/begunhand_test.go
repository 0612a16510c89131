package backlog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// begunAnywhere are the ways in which it is known that a task, which waits in a restored database, has begun its first attempt. The
// backlog that they return was opened since, and nobody told it anything.
var begunAnywhere = map[string]func(s scene, task string) *backlog.Backlog{
	"by its directory": func(s scene, task string) *backlog.Backlog {
		b := backlog.Open(s.DB, nobodyAsks)
		b.Found = func(_, of string) (int, error) { return map[string]int{task: 1}[of], nil }
		return b
	},
	"by its asker": func(s scene, task string) *backlog.Backlog {
		s.exec(`INSERT INTO recalled (task, conn, attempt, over) VALUES ($1, $2, 1, false)`, task, s.Conn.ID)
		return backlog.Open(s.DB, nobodyAsks)
	},
}

// What had begun before a restore is not moved by hand: its process may run. A kill ends it.
func TestWhatBeganIsNotMovedByHand(t *testing.T) {
	t.Parallel()
	for how, known := range begunAnywhere {
		for word, act := range map[string]func(*backlog.Workspace, context.Context, backlog.Act) (backlog.Task, error){
			"cancel": (*backlog.Workspace).Cancel, "fail": (*backlog.Workspace).Fail, "complete": (*backlog.Workspace).Complete, "block": (*backlog.Workspace).Block,
		} {
			t.Run(word+", known "+how, func(t *testing.T) {
				t.Parallel()
				s, _ := told(t)
				r := s.asked()
				s.restored()
				b := known(s, r.Spawn.Task)
				ws, err := b.Workspace(backlog.MainWorkspace, "ann")
				require.NoError(t, err)

				_, err = act(ws, t.Context(), backlog.Act{Task: r.Spawn.Task, Reason: "so"})

				refused, ok := errors.AsType[*commands.Refused](err)
				require.True(t, ok, err)
				require.Equal(t, commands.Conflict, refused.Code)
				require.Contains(t, refused.Error(), "attempt 1 had begun before")
				require.Equal(t, commands.Queued, s.stood().state)
				s.backlog = b
				require.NoError(t, b.LookForRestore(t.Context()))
				require.NotNil(t, s.killed(s.kill(r)))
				s.sound()
			})
		}
	}
}

// What has not begun is moved by hand, also where its database was restored or is not, and somebody has made a directory.
func TestWhatHasNotBegunIsMovedByHand(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		restored bool
		found    int
	}{"never restored": {false, 1}, "restored, and nothing of it is here": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := told(t)
			r := s.asked()
			if tt.restored {
				s.restored()
			}
			s.backlog.Found = func(string, string) (int, error) { return tt.found, nil }

			_, err := s.b.Cancel(t.Context(), backlog.Act{Task: r.Spawn.Task, Reason: "so"})

			require.NoError(t, err)
			require.Equal(t, commands.Cancelled, s.stood().state)
		})
	}
}

// The end of an order's time ends what has not begun. What had begun before a restore waits, and the next claim has the attempt that began.
// So does what cannot be told now: of one task alone it keeps no other from its end.
func TestWhatBeganDoesNotExpire(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	begun := s.asked().Spawn.Task
	other := s.request()
	require.Nil(t, s.asks(other)[0].Refusal)
	s.restored()
	b := backlog.Open(s.DB, nobodyAsks)
	lost := errors.New("the disk fails")
	b.Found = func(_, task string) (int, error) {
		if lost != nil && (task == begun || !errors.Is(lost, backlog.ErrUntold)) {
			return 0, lost
		}
		return map[string]int{begun: 2}[task], nil
	}
	require.NoError(t, s.Exec(`UPDATE ready SET expires_at = now() - interval '1 s'`))
	_, err := b.Sweep(t.Context(), time.Minute)
	require.ErrorIs(t, err, lost)
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM ready`), "what cannot be told now does not expire")
	ws, err := b.Workspace(backlog.MainWorkspace, "ann")
	require.NoError(t, err)
	for range 2 {
		_, err = ws.Fail(t.Context(), backlog.Act{Task: begun, Reason: "so"})
		require.ErrorIs(t, err, lost, "nor is it moved by hand")
		lost = fmt.Errorf("%w: %w", backlog.ErrUntold, lost)
	}

	swept, err := b.Sweep(t.Context(), time.Minute)

	require.NoError(t, err)
	require.Equal(t, []any{1, time.Second}, []any{swept.Expired, swept.Next})
	require.Equal(t, []string{begun}, slices.Collect(maps.Keys(swept.Untold)))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'expired'`, other.Spawn.Task))
	lost = nil
	swept, err = b.Sweep(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Equal(t, []any{0, time.Minute}, []any{swept.Expired, swept.Next})
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM ready WHERE task = $1 AND attempt = 2 AND expires_at = 'infinity'`, begun))
}

// A slow disk holds up no transaction for long: what it has no time for waits for the next one, which begins there.
func TestASlowDiskIsLookedAtInTurn(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	tasks := map[string]int{}
	s.Meet(t, store.Obeys)
	for range 6 {
		r := s.request()
		require.Nil(t, s.asks(r)[0].Refusal)
		tasks[r.Spawn.Task] = 0
	}
	s.restored()
	b := backlog.Open(s.DB, nobodyAsks)
	backlog.LookFor(b, time.Nanosecond)
	slow := true
	b.Found = func(_, task string) (int, error) {
		tasks[task]++
		if slow {
			return 0, backlog.ErrUntold
		}
		return 0, nil
	}
	require.NoError(t, s.Exec(`UPDATE ready SET expires_at = now() - interval '1 s'`))

	for range tasks {
		swept, err := b.Sweep(t.Context(), time.Minute)
		require.NoError(t, err)
		require.Zero(t, swept.Expired)
		require.Len(t, swept.Untold, len(tasks))
	}

	for task, looked := range tasks {
		require.Equal(t, 1, looked, task)
	}
	slow = false
	backlog.LookFor(b, 0)
	swept, err := b.Sweep(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Equal(t, len(tasks), swept.Expired)
}

// What of a sweep fails keeps nothing else of it from being done.
func TestWhatFailsOfASweepKeepsNothingElse(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	late := s.asked().Spawn.Task
	owner, err := pgx.Connect(t.Context(), s.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = owner.Close(context.WithoutCancel(t.Context())) })
	_, err = owner.Exec(t.Context(), `CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'it fails'; END $$`)
	require.NoError(t, err)
	_, err = owner.Exec(t.Context(), `CREATE TRIGGER fails BEFORE DELETE ON account_limits FOR EACH ROW EXECUTE FUNCTION fails()`)
	require.NoError(t, err)
	s.exec(`INSERT INTO account_limits (workspace, account, until, task) VALUES ('main', 'work', now() - interval '1 s', $1)`, late)
	s.exec(`UPDATE ready SET expires_at = now() - interval '1 s'`)

	swept, err := s.backlog.Sweep(t.Context(), time.Minute)

	require.ErrorContains(t, err, "it fails")
	require.Equal(t, 1, swept.Expired)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'expired'`, late))
}
