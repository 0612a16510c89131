package store_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// pausing is a hub that pauses agents of a spoke, which answers when it is told to.
type pausing struct {
	*storetest.Pair
	testing.TB
	got []*store.Incoming // by the spoke, and not answered
}

func newPausing(t *testing.T, agents int) (p *pausing, tasks []string) {
	p = &pausing{storetest.NewPair(t), t, nil}
	for range agents {
		tasks = append(tasks, p.Order(t, nil))
	}
	p.Hub.Due(t)
	return p, tasks
}

func (p *pausing) order(task string, on bool, why string) {
	_, _, err := p.Hub.DB.OrderPause(p.Context(), commands.Pause{Task: task, Paused: on, Reason: why}, time.Hour, "ann")
	require.NoError(p, err)
	p.got = append(p.got, p.Spoke.Read(p, p.Hub.Due(p)...)...)
}

// answer takes the next orders, or refuses them, and returns what the hub is to be told.
func (p *pausing) answer(n int, refused bool) []*store.Incoming {
	list := p.got[:n]
	p.got = p.got[n:]
	require.NoError(p, p.Spoke.DB.Tx(p.Context(), "answering", func(_ context.Context, tx *store.Tx) error {
		for _, m := range list {
			if refused {
				m.Refuse(tx, commands.Refuse(commands.Conflict, "it was cancelled"))
			} else {
				m.Answer(tx, &commands.Accepted{Task: m.Task(), State: commands.Running})
			}
		}
		return nil
	}))
	return p.Hub.Read(p, p.Spoke.Due(p)...)
}

func (p *pausing) hear(list []*store.Incoming) {
	_, err := p.Hub.DB.TakeIn(p.Context(), p.Hub.Conn.ID, 20, list, store.MoveMirrors(storetest.Nowhere))
	require.NoError(p, err)
}

// say orders a pause, a resume and so on, named a, b, …, and has become of each what is said.
func (p *pausing) say(task string, became []string) {
	for i, became := range became {
		p.order(task, i%2 == 0, string(rune('a'+i)))
		switch became {
		case store.PauseTaken, store.PauseRefused:
			p.hear(p.answer(1, became == store.PauseRefused))
		case store.PauseExpired:
			p.expire()
		}
	}
}

func (p *pausing) expire() {
	require.NoError(p, p.Hub.Exec(`UPDATE mirrors SET pause_expires_at = pause_expires_at - interval '3 hours'`))
	next, err := p.Hub.DB.NextUnanswered(p.Context(), time.Minute)
	require.NoError(p, err)
	require.LessOrEqual(p, next, time.Duration(0))
	_, err = p.Hub.DB.EndUnanswered(p.Context())
	require.NoError(p, err)
	p.got = nil
}

// last is what the hub has of the last order, and which one is in force.
func (p *pausing) last(task string) (state, why, inForce string) {
	var o store.OrderedPause
	require.NoError(p, json.Unmarshal(p.Mirror(p, task).Pause, &o))
	if was := o.InForce(); was != nil {
		inForce = was.Reason
	}
	return o.State, o.Reason, inForce
}

// An order to pause or to resume is in force once it was taken, and one that was refused or has expired changes nothing of that.
func TestThePauseInForce(t *testing.T) {
	t.Parallel()
	const sent, taken, refused, expired = store.PauseSent, store.PauseTaken, store.PauseRefused, store.PauseExpired
	for name, tt := range map[string]struct {
		became         []string // of each order; they are named a, b, c
		state, inForce string
	}{
		"one that is on its way":        {[]string{sent}, sent, ""},
		"one that was taken":            {[]string{taken}, taken, "a"},
		"one that was refused":          {[]string{refused}, refused, ""},
		"one that has expired":          {[]string{expired}, expired, ""},
		"one after it is on its way":    {[]string{taken, sent}, sent, "a"},
		"one after it was taken":        {[]string{taken, taken}, taken, "b"},
		"one after it was refused":      {[]string{taken, refused}, refused, "a"},
		"one after it has expired":      {[]string{taken, expired}, expired, "a"},
		"two after it were refused":     {[]string{taken, refused, refused}, refused, "a"},
		"refused, expired, on its way":  {[]string{taken, refused, sent}, sent, "a"},
		"taken after one was refused":   {[]string{refused, taken}, taken, "b"},
		"refused after another was":     {[]string{refused, refused}, refused, ""},
		"refused after one has expired": {[]string{expired, refused}, refused, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, tasks := newPausing(t, 1)
			p.say(tasks[0], tt.became)

			state, why, inForce := p.last(tasks[0])

			require.Equal(t, []string{tt.state, string(rune('a' + len(tt.became) - 1)), tt.inForce}, []string{state, why, inForce})
			refusals := 0
			for i, became := range tt.became {
				if became == refused {
					refusals++
					require.NotZero(t, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = $2 AND object = $1 AND code = 'CONFLICT' AND why = 'it was cancelled' AND actor = $3 AND conn = $4`,
						tasks[0], []string{"task.pause_refused", "task.resume_refused"}[i%2], string(p.Spoke.Self()), p.Hub.Conn.ID))
				}
			}
			require.Equal(t, refusals, p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action IN ('task.pause_refused', 'task.resume_refused')`))
			require.Equal(t, len(slices.DeleteFunc(tt.became, func(s string) bool { return s != expired })),
				p.Hub.Count(t, `SELECT count(*) FROM audit WHERE action = 'task.pause_expired' AND code = 'command_expired' AND object = $1`, tasks[0]))
		})
	}
}

// An order that goes to another spoke stands still there as its last word has it: one that was refused or has expired is not
// said again.
func TestAPauseGoesElsewhereWithItsOrder(t *testing.T) {
	t.Parallel()
	const sent, taken, refused, expired = store.PauseSent, store.PauseTaken, store.PauseRefused, store.PauseExpired
	for name, tt := range map[string]struct {
		became []string // of each word: a pause, a resume; they are named a, b
		goes   string   // the pause that the other spoke gets
	}{
		"no pause":                     {nil, ""},
		"a pause on its way":           {[]string{sent}, "a"},
		"a pause that was taken":       {[]string{taken}, "a"},
		"a pause that was refused":     {[]string{refused}, ""},
		"a pause that has expired":     {[]string{expired}, ""},
		"a resume on its way":          {[]string{taken, sent}, ""},
		"a resume that was taken":      {[]string{taken, taken}, ""},
		"a resume that was refused":    {[]string{taken, refused}, "a"},
		"a resume that has expired":    {[]string{taken, expired}, "a"},
		"a pause and a resume expired": {[]string{expired, expired}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pausing{storetest.NewPair(t), t, nil}
			q := p.Another(t)
			among := []store.Candidate{{Conn: p.Hub.Conn.ID, Slots: 4}, {Conn: q.Hub.Conn.ID, Slots: 4, Busy: 2}}
			task := p.Order(t, func(o *store.SpawnOrder) { o.Anywhere, o.Among = true, among })
			spawn := p.Spoke.Read(t, p.Hub.Due(t)...)[0]
			p.say(task, tt.became)

			refuseOne(t, p.Pair, spawn, among)

			want := []commands.Kind{commands.SpawnKind, commands.PauseKind}[:1+len(tt.goes)]
			got := q.Spoke.Read(t, q.Hub.Due(t)...)
			require.Len(t, got, len(want))
			for i, kind := range want {
				require.Equal(t, kind, got[i].Body.Kind())
			}
			if tt.goes != "" {
				pause := got[1].Body.(*commands.Pause)
				require.Equal(t, []any{task, true, tt.goes}, []any{pause.Task, pause.Paused, pause.Reason})
				state, why, _ := p.last(task)
				require.Equal(t, []string{sent, tt.goes}, []string{state, why})
			}
		})
	}
}

// Two words that went out while their spoke was away are answered one by one, or in one batch.
func TestTwoPausesAreAnswered(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"together": true, "one by one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, tasks := newPausing(t, 1)
			p.order(tasks[0], true, "a")
			p.order(tasks[0], false, "b")
			first, second := p.answer(1, false), p.answer(1, true)
			if together {
				first, second = append(first, second...), nil
			}

			p.hear(first)

			if !together {
				state, _, inForce := p.last(tasks[0])
				require.Equal(t, []string{store.PauseSent, "a"}, []string{state, inForce})
				p.hear(second)
			}
			state, _, inForce := p.last(tasks[0])
			require.Equal(t, []string{store.PauseRefused, "a"}, []string{state, inForce})
		})
	}
}

// Answers hold their mirrors in the order of the tasks, whatever the order in which they come: others hold several, too.
func TestAnswersToPausesHoldMirrorsInOrder(t *testing.T) {
	t.Parallel()
	p, tasks := newPausing(t, 2)
	slices.Sort(tasks)
	p.order(tasks[1], true, "b")
	p.order(tasks[0], true, "a")
	answers := p.answer(2, false)

	holdsInOrder(t, p.Hub.URL, tasks[0], tasks[1], func() error {
		_, err := p.Hub.DB.TakeIn(context.Background(), p.Hub.Conn.ID, 20, answers, store.MoveMirrors(storetest.Nowhere))
		return err
	})

	for _, task := range tasks {
		state, _, _ := p.last(task)
		require.Equal(t, store.PauseTaken, state)
	}
}

// holdsInOrder has somebody else hold the mirror of the first task while act runs, which holds both: the second one is free as
// long as act waits for the first.
func holdsInOrder(t *testing.T, url, first, second string, act func() error) {
	t.Helper()
	other, err := pgx.Connect(t.Context(), pgtest.Admin(url))
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	hold := func(task string) error {
		_, err := tx.Exec(t.Context(), `SELECT FROM mirrors WHERE task = $1 FOR UPDATE NOWAIT`, task)
		return err
	}
	require.NoError(t, hold(first))
	done := make(chan error, 1)
	go func() { done <- act() }()
	require.Eventually(t, func() bool {
		var waits bool
		err := tx.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
		return err != nil || waits || len(done) > 0
	}, 20*time.Second, 5*time.Millisecond)

	require.NoError(t, hold(second))

	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
}

// What an agent that stands still has asked is no word on its pause. Its spoke tells behind it that it stands still, maybe in another batch.
func TestAQuestionDoesNotEndAPause(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		then commands.State
		last string
	}{
		"it stands still": {commands.Paused, store.PauseTaken},
		"it goes on":      {commands.Running, store.PauseOver},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, tasks := newPausing(t, 1)
			p.order(tasks[0], true, "a")
			p.hear(p.answer(1, false))
			require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET state = 'paused'`))
			for i, body := range []commands.Body{
				asked(tasks[0]),
				&commands.TaskState{Task: tasks[0], State: commands.Paused, Attempt: 1},
				&commands.TaskState{Task: tasks[0], State: tt.then, Attempt: 1},
			} {
				p.hear(reports(t, p.Pair, tasks[0], body))
				state, _, _ := p.last(tasks[0])
				require.Equal(t, []string{store.PauseTaken, store.PauseTaken, tt.last}[i], state)
			}
		})
	}
}
