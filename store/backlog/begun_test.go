package backlog_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// killed carries out a kill of a connection, as the spoke does.
func (s scene) killed(k backlog.Kill) (run *backlog.KillRun) {
	require.NoError(s, s.DB.Tx(s.Context(), "killing", func(ctx context.Context, tx *store.Tx) error {
		state, err := s.backlog.NoteKill(ctx, tx, k)
		if err == nil && state != "" {
			run, err = s.backlog.Kill(ctx, tx, k, state)
		}
		return err
	}))
	return run
}

// killedHere is the same by the host.
func (s scene) killedHere(task, cancel string) *backlog.KillRun {
	run, err := s.backlog.KillHere(s.Context(), backlog.HostKill{Kill: commands.Kill{Task: task, Reason: "enough", GraceMS: 1000, Cancel: cancel}, ID: storetest.NewID(), Actor: "ann"})
	require.NoError(s, err)
	return run
}

// pausedHere lets the host say whether an agent is to stand still.
func (s scene) pausedHere(task string, on bool) *backlog.PauseRun {
	run, err := s.backlog.PauseHere(s.Context(), backlog.Pause{Task: task, Paused: on, Reason: "so", Actor: "ann"})
	require.NoError(s, err)
	return run
}

// sound checks the invariants, but for the audit of orders, which the spoke writes.
func (s scene) sound() {
	list, err := broken(context.Background(), s.URL)
	require.NoError(s, err)
	require.Empty(s, slices.DeleteFunc(list, func(what string) bool { return strings.HasPrefix(what, "the audit tells of every creation once") }))
}

// aWord is one about a task, and how that stands while its attempt goes on: the reason, and whether its agent is to stand still.
type aWord struct {
	say    func(s scene, r backlog.Request)
	reason commands.Reason
	paused bool
	state  commands.State // when the attempt has ended well
}

var words = map[string]aWord{
	"a kill": {func(s scene, r backlog.Request) { require.NotNil(s, s.killed(s.kill(r))) }, commands.KillRequested, false, commands.Cancelled},
	"a cancel": {func(s scene, r backlog.Request) {
		k := s.kill(r)
		k.Cancel = commands.CancelNow
		require.NotNil(s, s.killed(k))
	}, commands.CancelRequested, false, commands.Completed},
	"a cancel that lets it finish": {func(s scene, r backlog.Request) {
		k := s.kill(r)
		k.Cancel = commands.CancelAfter
		s.killed(k)
	}, commands.CancelRequested, false, commands.Completed},
	"a kill by the host":                         {func(s scene, r backlog.Request) { require.NotNil(s, s.killedHere(r.Spawn.Task, "")) }, commands.Operator, false, commands.Cancelled},
	"a pause":                                    {func(s scene, r backlog.Request) { _, _, err := s.pause(pauseOf(r, 90, true)); require.NoError(s, err) }, commands.NoReason, true, commands.Completed},
	"a pause by the host":                        {func(s scene, r backlog.Request) { require.NotNil(s, s.pausedHere(r.Spawn.Task, true)) }, commands.NoReason, true, commands.Completed},
	"a resume by the host":                       {func(s scene, r backlog.Request) { s.pausedHere(r.Spawn.Task, false) }, commands.NoReason, false, commands.Completed},
	"the end of its connection":                  {func(s scene, r backlog.Request) { s.revoke(true) }, commands.LinkRevoked, false, commands.Cancelled},
	"the end of its connection, and it finishes": {func(s scene, r backlog.Request) { s.revoke(false) }, commands.NoReason, false, commands.Completed},
}

// A word about a task that waits, as far as a restored database knows, and that has begun another attempt since is carried out on that:
// the task neither ends nor is put aside, and its attempt is this instance's.
func TestAWordAboutWhatBeganIsAboutItsAttempt(t *testing.T) {
	t.Parallel()
	noted := func(s scene, task string) {
		s.exec(`INSERT INTO recalled (task, conn, attempt, over) VALUES ($1, $2, 1, false)`, task, s.Conn.ID)
	}
	directory := func(attempt int) func(s scene, task string) {
		return func(s scene, task string) { s.backlog.NoteBegun(task, attempt) }
	}
	for name, known := range map[string]func(s scene, task string){
		"by its directory": directory(1),
		"by its asker":     noted,
		"by its asker, and later by its directory": func(s scene, task string) {
			noted(s, task)
			directory(2)(s, task)
		},
		"as the one after that its asker knows": func(s scene, task string) {
			s.recall(commands.TaskStanding{Task: task, State: commands.Queued, Attempt: 1, Over: true})
			directory(2)(s, task)
		},
	} {
		for word, w := range words {
			t.Run(word+", known "+name, func(t *testing.T) {
				t.Parallel()
				s, _ := told(t)
				r := s.asked()
				s.restored()
				require.NoError(t, s.backlog.LookForRestore(t.Context()))
				known(s, r.Spawn.Task)

				w.say(s, r)

				require.True(t, s.backlog.Opened())
				open, err := s.backlog.OpenAttempts(t.Context(), string(s.Self()), nil, "")
				require.NoError(t, err)
				require.Len(t, open, 1)
				got := s.stood()
				require.Equal(t, []any{commands.Claimed, w.reason}, []any{got.state, got.reason})
				require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases WHERE paused = $1`, w.paused))
				s.ends(*got.fence, commands.Succeeded, commands.NoReason)
				require.Equal(t, w.state, s.stood().state)
			})
		}
	}
}

// The same where the task is put aside, as far as is known.
func TestWhatBeganIsFoundWhereverItsTaskStands(t *testing.T) {
	t.Parallel()
	for name, aside := range map[string]func(s scene) backlog.Request{
		"paused": func(s scene) backlog.Request {
			r := s.asked()
			require.Nil(s, s.pausedHere(r.Spawn.Task, true))
			return r
		},
		"blocked": func(s scene) backlog.Request {
			r := s.asked()
			_, err := s.b.Block(s.Context(), backlog.Act{Task: r.Spawn.Task, Reason: "so"})
			require.NoError(s, err)
			return r
		},
		"asking": func(s scene) backlog.Request {
			f := s.started()
			_, err := s.backlog.Ask(s.Context(), f, inquiry)
			require.NoError(s, err)
			s.ends(f, commands.Parked, commands.Limit)
			return backlog.Request{Conn: s.Conn.ID, Spawn: &commands.Spawn{Task: f.Task}}
		},
		"due": func(s scene) backlog.Request {
			f := s.started()
			s.ends(f, commands.AttemptFailed, commands.NoReason)
			return backlog.Request{Conn: s.Conn.ID, Spawn: &commands.Spawn{Task: f.Task}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := told(t)
			r := aside(s)
			last := s.Count(t, `SELECT attempt FROM tasks`)
			s.restored()
			require.NoError(t, s.backlog.LookForRestore(t.Context()))
			waiting, err := s.backlog.WaitingAgents(t.Context(), s.Conn.ID, "")
			require.NoError(t, err)
			require.Equal(t, []backlog.WaitingAgent{{Task: r.Spawn.Task, Attempt: last}}, waiting)
			s.backlog.NoteBegun(r.Spawn.Task, last+1)

			require.NotNil(t, s.killed(s.kill(r)))

			got := s.stood()
			require.Equal(t, []any{commands.Claimed, commands.KillRequested, last + 1}, []any{got.state, got.reason, got.fence.Attempt})
			s.sound()
			s.ends(*got.fence, commands.AttemptKilled, commands.NoReason)
			require.Equal(t, commands.Cancelled, s.stood().state)
			s.sound()
		})
	}
}

// A word may come before the order does that comes again. It is carried out when that is here.
func TestAWordBeforeTheOrderOfWhatBegan(t *testing.T) {
	t.Parallel()
	for name, recalled := range map[string]bool{"its asker knows": true, "its directory is here": false} {
		for word, want := range map[string]struct {
			reason commands.Reason
			paused bool
		}{"kill": {commands.KillRequested, false}, "finish": {commands.CancelRequested, false}, "pause": {commands.NoReason, true}} {
			t.Run(word+", "+name, func(t *testing.T) {
				t.Parallel()
				s, _ := told(t)
				s.Meet(t, store.Obeys)
				s.restored()
				require.NoError(t, s.backlog.LookForRestore(t.Context()))
				r := s.request()
				if recalled {
					s.recall(commands.TaskStanding{Task: r.Spawn.Task, Command: r.Asked.Command, SHA256: r.Asked.Digest, State: commands.Running, Attempt: 1, Comes: true})
				} else {
					s.backlog.NoteBegun(r.Spawn.Task, 1)
				}
				switch k := s.kill(r); word {
				case "pause":
					_, _, err := s.pause(pauseOf(r, 90, true))
					require.NoError(t, err)
				case "finish":
					k.Cancel = commands.CancelAfter
					require.Nil(t, s.killed(k))
				default:
					require.Nil(t, s.killed(k))
				}

				again := r
				again.Asked = message()
				got := s.asks(r, again)

				require.Nil(t, got[0].Refusal)
				require.Nil(t, got[1].Refusal)
				stood := s.stood()
				require.Equal(t, []any{commands.Claimed, want.reason, 1}, []any{stood.state, stood.reason, stood.fence.Attempt})
				paused, err := s.backlog.KeepPaused(t.Context(), *stood.fence)
				require.NoError(t, err)
				require.Equal(t, want.paused, paused)
				require.Zero(t, s.Count(t, `SELECT count(*) FROM kills WHERE tombstone`))
				s.sound()
			})
		}
	}
}

// What has not begun, or has ended, or is of a database that was never restored, ends at once.
func TestWhatHasNotBegunEndsAtOnce(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(s scene, task string){
		"never restored": func(s scene, task string) {
			require.NoError(s, s.backlog.LookForRestore(s.Context()))
			s.backlog.NoteBegun(task, 1)
		},
		"nothing is known": func(s scene, _ string) { s.restored(); require.NoError(s, s.backlog.LookForRestore(s.Context())) },
		"its last attempt has ended": func(s scene, task string) {
			s.restored()
			s.recall(commands.TaskStanding{Task: task, State: commands.Queued, Attempt: 1, Over: true})
			s.backlog.NoteBegun(task, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := told(t)
			r := s.asked()
			before(s, r.Spawn.Task)

			require.Nil(t, s.killed(s.kill(r)))

			require.Equal(t, commands.Cancelled, s.stood().state)
			require.False(t, s.backlog.Opened())
		})
	}
}

// What was opened is looked for until somebody follows it.
func TestWhatWasOpenedIsTakenOver(t *testing.T) {
	t.Parallel()
	s, _ := told(t)
	r := s.asked()
	s.restored()
	require.NoError(t, s.backlog.LookForRestore(t.Context()))
	s.backlog.NoteBegun(r.Spawn.Task, 1)
	s.killed(s.kill(r))
	k, pending, err := s.backlog.PendingKill(t.Context(), r.Spawn.Task)
	require.NoError(t, err)
	require.True(t, pending)
	require.Equal(t, time.Second, k.Grace)

	s.backlog.TakenOver(r.Spawn.Task, 1)

	require.False(t, s.backlog.Opened())
}

// What has begun since the backup is this instance's again as soon as its asker tells of it, and where the attempt before it ends: it
// waits for no back-off, no slot and no lane, and no person, or its agent would be ended by its lease.
func TestWhatBeganWaitsForNothing(t *testing.T) {
	t.Parallel()
	running := func(s scene) (string, *backlog.Fence) { f := s.started(); return f.Task, &f }
	runs := func(s scene, task string) {
		s.recall(commands.TaskStanding{Task: task, State: commands.Running, Attempt: s.Count(s, `SELECT attempt FROM standing`) + 1})
	}
	noted := func(s scene, task string) { // since before its attempt was known here
		s.exec(`INSERT INTO recalled (task, conn, attempt, over) VALUES ($1, $2, 2, false)`, task, s.Conn.ID)
	}
	for name, tt := range map[string]struct {
		here func(s scene) (task string, open *backlog.Fence)
		told func(s scene, task string)
		ends commands.Outcome // of the attempt that is open
	}{
		"after a failure":                   {running, noted, commands.AttemptFailed},
		"after a loss":                      {running, noted, commands.Interrupted},
		"after a limit of its account":      {running, noted, commands.Parked},
		"after a failure, by its directory": {running, func(s scene, task string) { s.backlog.NoteBegun(task, 2) }, commands.AttemptFailed},
		"as its order comes again": {func(s scene) (string, *backlog.Fence) {
			s.asked()
			return s.request().Spawn.Task, nil
		}, func(s scene, task string) {
			r := s.request()
			r.Spawn.Task = task
			s.recall(commands.TaskStanding{Task: task, Command: r.Asked.Command, SHA256: r.Asked.Digest, State: commands.Running, Attempt: 1, Comes: true})
			require.NoError(s, s.DB.Tx(s.Context(), "asking again", func(ctx context.Context, tx *store.Tx) error {
				_, err := s.backlog.Request(ctx, tx, []backlog.Request{r})
				return err
			}))
		}, ""},
		"after a loss, as it was to be paused": {func(s scene) (string, *backlog.Fence) {
			f := s.started()
			s.pausedHere(f.Task, true)
			return f.Task, &f
		}, noted, commands.Interrupted},
		"where its lane is paused": {func(s scene) (string, *backlog.Fence) {
			task := s.asked().Spawn.Task
			s.exec(`UPDATE lanes SET state = 'paused'`)
			return task, nil
		}, runs, ""},
		"where it waits for its next try": {func(s scene) (string, *backlog.Fence) {
			f := s.started()
			s.ends(f, commands.AttemptFailed, commands.NoReason)
			return f.Task, nil
		}, runs, ""},
		"where its account has met a limit": {func(s scene) (string, *backlog.Fence) {
			f := s.started()
			s.ends(f, commands.Parked, commands.Limit)
			return f.Task, nil
		}, runs, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := told(t)
			task, open := tt.here(s)
			s.restored()
			require.NoError(t, s.backlog.LookForRestore(t.Context()))
			tt.told(s, task)

			if open != nil {
				s.ends(*open, tt.ends, commands.NoReason)
			}

			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM leases l JOIN tasks t ON t.id = l.task WHERE task = $1 AND l.attempt = t.attempt + 1`, task))
			require.True(t, s.backlog.Opened())
			require.Zero(t, s.Count(t, `SELECT (SELECT count(*) FROM ready WHERE task = $1) + (SELECT count(*) FROM due WHERE task = $1) + (SELECT count(*) FROM parked WHERE task = $1)`, task))
			s.sound()
		})
	}
}
