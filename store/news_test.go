package store_test

import (
	"context"
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

// news are the events of progress and overruns that have come since the last call.
type news struct {
	*storetest.Side
	t    *testing.T
	task string
	at   int64
}

// save saves heartbeats, of which none is refused.
func save(t *testing.T, s *storetest.Side, beats ...store.Beat) {
	t.Helper()
	refused, err := s.DB.SaveBeats(t.Context(), beats)
	require.NoError(t, err)
	require.Empty(t, refused)
}

// beats saves a heartbeat of each of the agents, in their order, and returns what was told of them.
func (n *news) beats(conn string, agents ...commands.AgentBeat) (list []store.Event) {
	n.t.Helper()
	for _, a := range agents {
		save(n.t, n.Side, store.Beat{Conn: conn, Body: commands.Heartbeat{IntervalMS: 1000, Agents: []commands.AgentBeat{a}}})
	}
	_, _, err := n.DB.NumberEvents(n.t.Context(), 100)
	require.NoError(n.t, err)
	all, err := n.DB.EventsAfter(n.t.Context(), n.at, 100)
	require.NoError(n.t, err)
	for _, e := range all {
		if n.at = e.Seq; e.Kind == store.ProgressEvent || e.Kind == store.OverrunEvent {
			require.Equal(n.t, n.task, e.Task)
			list = append(list, e)
		}
	}
	return list
}

func (n *news) says(attempt int, at int64) commands.AgentBeat {
	return commands.AgentBeat{Task: n.task, Attempt: attempt, State: commands.Running, Progress: &commands.AgentProgress{Progress: commands.Progress{Current: &at, Step: "tests"}, At: at}}
}

// later moves what was told so far into the past.
func (n *news) later(by time.Duration) {
	require.NoError(n.t, n.Exec(`UPDATE agent_news SET told_at = told_at - $1::interval`, by))
	require.NoError(n.t, n.Exec(`DELETE FROM new_events`)) // the change above is none of the program
}

func newNews(t *testing.T) *news {
	t.Helper()
	s := scene{t, storetest.NewSide(t, 1, 2)}
	n := &news{Side: s.Side, t: t, task: s.ordered()}
	require.NoError(t, n.Exec(`UPDATE mirrors SET state = 'running', attempt = 1`))
	return n
}

// However often an agent says how far it is, it is an event every so often only, and the newest then; again at once of another attempt.
func TestProgressIsAnEventNowAndThen(t *testing.T) {
	t.Parallel()
	n := newNews(t)

	list := n.beats(n.Conn.ID, n.says(1, 1), n.says(1, 2), n.says(1, 3))

	require.Len(t, list, 1)
	require.Equal(t, n.says(1, 1).Progress, list[0].Progress)
	require.Equal(t, 1, list[0].Attempt)
	n.later(store.ProgressEvery)
	list = n.beats(n.Conn.ID, n.says(1, 4), n.says(1, 5))
	require.Len(t, list, 1)
	require.Equal(t, int64(4), *list[0].Progress.Current)
	n.later(store.ProgressEvery)
	require.Empty(t, n.beats(n.Conn.ID, n.says(1, 4)), "it has said nothing since")
	require.NoError(t, n.Exec(`UPDATE mirrors SET attempt = 2`))
	require.Empty(t, n.beats(n.Conn.ID, n.says(1, 6)), "a heartbeat of the attempt before")
	require.Len(t, n.beats(n.Conn.ID, n.says(2, 7)), 1)
}

// An overrun is told once of each attempt.
func TestAnOverrunIsAnEventOnce(t *testing.T) {
	t.Parallel()
	n := newNews(t)
	over := commands.AgentBeat{Task: n.task, Attempt: 1, State: commands.Running, Overrun: true}

	list := n.beats(n.Conn.ID, over, over)

	require.Len(t, list, 1)
	require.Equal(t, store.OverrunEvent, list[0].Kind)
	n.later(time.Hour)
	require.Empty(t, n.beats(n.Conn.ID, over))
	require.NoError(t, n.Exec(`UPDATE mirrors SET attempt = 2`))
	over.Attempt = 2
	require.Len(t, n.beats(n.Conn.ID, over), 1)
}

// A spoke tells nothing of an agent that is not its own, and none is told of what has ended.
func TestNewsAreOfOnesOwnAgents(t *testing.T) {
	t.Parallel()
	n := newNews(t)
	own := n.Conn.ID
	n.MeetAnother(t, store.Commands)
	require.NotEqual(t, own, n.Conn.ID)
	require.Empty(t, n.beats(n.Conn.ID, n.says(1, 1)))
	require.NoError(t, n.Exec(`UPDATE mirrors SET state = 'completed', ended_at = now()`))
	require.Empty(t, n.beats(own, n.says(1, 1)))
}

// Who numbers events hears of news, and of heartbeats that have none nothing.
func TestWhoNumbersEventsHearsOfNews(t *testing.T) {
	t.Parallel()
	n := newNews(t)
	heard := make(chan store.Wrote, 100)
	ctx, cancel := context.WithCancel(t.Context())
	watching := make(chan error, 1)
	go func() {
		watching <- n.DB.Watch(ctx, store.Watcher{Changed: func(w store.Wrote) { heard <- w }, Every: time.Minute})
	}()
	t.Cleanup(func() { cancel(); <-watching })
	for <-heard != store.ByThis { // it watches
		write(t, n.DB)
		time.Sleep(10 * time.Millisecond)
	}
	for len(heard) > 0 {
		<-heard
	}
	n.beats(n.Conn.ID, commands.AgentBeat{Task: n.task, Attempt: 1, State: commands.Running})
	require.Empty(t, heard)

	n.beats(n.Conn.ID, n.says(1, 1))

	select {
	case w := <-heard:
		require.Equal(t, store.ByThis, w)
	case <-time.After(5 * time.Second):
		t.Fatal("nobody is told")
	}
}

// What the heartbeat of one spoke says that the database cannot keep takes nothing from those of others, and is named.
func TestAHeartbeatThatCannotBeKeptHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	n := newNews(t)
	good := n.Conn.ID
	n.MeetAnother(t, store.Commands)
	bad := n.Conn.ID
	body := commands.Heartbeat{IntervalMS: 1000, Agents: []commands.AgentBeat{n.says(1, 1)}}
	poison := body
	poison.Version = "a\x00"

	for _, list := range [][]store.Beat{{{Conn: bad, Body: poison}, {Conn: good, Body: body}}, {{Conn: good, Body: body}, {Conn: bad, Body: poison}}} {
		refused, err := n.DB.SaveBeats(t.Context(), list)
		require.NoError(t, err)
		require.Len(t, refused, 1)
		require.Error(t, refused[bad])
		require.Equal(t, 1, n.Count(t, `SELECT count(*) FROM heartbeats WHERE conn = $1`, good))
		require.Equal(t, 1, n.Count(t, `SELECT count(*) FROM agent_news WHERE conn = $1`, good))
		require.NoError(t, n.Exec(`DELETE FROM heartbeats`))
		require.NoError(t, n.Exec(`DELETE FROM agent_news`))
	}
}

// What a heartbeat says twice of an agent is news once.
func TestNewsThatComeTwiceInOneHeartbeat(t *testing.T) {
	t.Parallel()
	n := newNews(t)

	save(t, n.Side, store.Beat{Conn: n.Conn.ID, Body: commands.Heartbeat{IntervalMS: 1000, Agents: []commands.AgentBeat{n.says(1, 1), n.says(1, 2)}}})

	require.Equal(t, 1, n.Count(t, `SELECT count(*) FROM agent_news WHERE said_at = 1`))
}

// News hold the mirrors of their agents in the order of the tasks, whatever the order in which a heartbeat describes them: others
// hold several, too.
func TestNewsHoldMirrorsInOrder(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	tasks := []string{p.Order(t, nil), p.Order(t, nil)}
	slices.Sort(tasks)
	require.NoError(t, p.Hub.Exec(`UPDATE mirrors SET title = title WHERE task = $1`, tasks[0])) // who reads the table sees it last, too
	owner, err := pgx.Connect(t.Context(), pgtest.Admin(p.Hub.URL))
	require.NoError(t, err)
	t.Cleanup(func() { _ = owner.Close(context.Background()) })
	_, err = owner.Exec(t.Context(), `ANALYZE mirrors`) // of a table without statistics, which may be large, the rows are sorted for other reasons
	require.NoError(t, err)
	beat := commands.Heartbeat{IntervalMS: 1000}
	for _, task := range []string{tasks[1], tasks[0]} {
		beat.Agents = append(beat.Agents, commands.AgentBeat{Task: task, State: commands.Running, Overrun: true})
	}

	holdsInOrder(t, p.Hub.URL, tasks[0], tasks[1], func() error {
		_, err := p.Hub.DB.SaveBeats(context.Background(), []store.Beat{{Conn: p.Hub.Conn.ID, Body: beat}})
		return err
	})

	require.Equal(t, 2, p.Hub.Count(t, `SELECT count(*) FROM agent_news`))
}
