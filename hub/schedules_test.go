package hub_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// A clock is that of a hub's database, which a test sets.
type clock struct{ m *meshtest.Mesh }

// newClock is the clock of a hub with a spoke that is away: what is ordered waits. It is set to times in the future only:
// what is older than it is kept, by the clock of this host, goes.
func newClock(t *testing.T) clock {
	t.Helper()
	m := meshtest.Start(t)
	m.Join(t, "attic")
	m.Stop(t, "hub")
	m.Hub.Exec(t, `CREATE SCHEMA moved`)
	m.Hub.Exec(t, `CREATE TABLE moved.ahead AS SELECT interval '0' AS by`)
	m.Hub.Exec(t, `CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + by FROM moved.ahead'`)
	m.Hub.Exec(t, `GRANT USAGE ON SCHEMA moved TO PUBLIC; GRANT SELECT ON moved.ahead TO PUBLIC`)
	m.Hub.Exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = moved, pg_catalog, public', current_database()); END $$`)
	m.Start(t, "hub")
	return clock{m}
}

const clockForm = "2006-01-02 15:04"

// set has the clock show a time of UTC, and tells the hub that something has changed.
func (c clock) set(t *testing.T, text string) {
	t.Helper()
	at, err := time.Parse(clockForm, text)
	require.NoError(t, err)
	c.m.Hub.Exec(t, `UPDATE moved.ahead SET by = $1::timestamptz - pg_catalog.clock_timestamp()`, at)
	c.m.Hub.Exec(t, `NOTIFY spawnmesh_changed`)
}

func (c clock) create(t *testing.T, name, cron, zone, overlap string) (v api.Schedule) {
	t.Helper()
	c.m.Hub.Do(t, "POST", "/api/v1/schedules", api.NewSchedule{Name: name, Cron: cron, Zone: zone, Overlap: api.Overlap(overlap), Task: api.NewTask{Runtime: api.Noop, Spoke: "attic"}}, &v)
	return v
}

// next is when a schedule is due next.
func (c clock) next(t *testing.T, name string) string {
	t.Helper()
	var s api.Schedule
	c.m.Hub.Do(t, "GET", "/api/v1/schedules/"+name, nil, &s)
	require.Len(t, s.Next, 5)
	return s.Next[0].Format(clockForm)
}

// fires are what became of a schedule, the oldest first.
func (c clock) fires(t *testing.T, name string) (list []string) {
	t.Helper()
	var v api.FireList
	c.m.Hub.Do(t, "GET", "/api/v1/schedules/"+name+"/fires", nil, &v)
	for _, f := range v.Items {
		list = append([]string{fmt.Sprintf("%s %s missed %d", f.DueAt.UTC().Format(clockForm), f.Outcome, f.Missed)}, list...)
	}
	return list
}

func (c clock) await(t *testing.T, name string, want ...string) {
	t.Helper()
	meshtest.Await(t, "what the schedule orders", func() bool { return len(c.fires(t, name)) >= len(want) })
	require.Equal(t, want, c.fires(t, name))
}

// However the clock is set, a schedule orders once for each time that it is due, or once for all that were missed.
func TestAScheduleIsDueOnceHoweverTheClockIsSet(t *testing.T) {
	t.Parallel()
	for zone, c := range map[string]struct{ cron, before, forward, autumn, back, again, next string }{
		"Europe/Berlin":       {"30 2 * * *", "2060-03-27 12:00", "2060-03-28 01:00", "2060-10-30 12:00", "2060-10-31 00:30", "2060-10-31 01:30", "2060-11-01 01:30"},
		"America/New_York":    {"30 1,2 * * *", "2060-03-14 06:45", "2060-03-14 07:00", "2060-11-06 12:00", "2060-11-07 05:30", "2060-11-07 06:30", "2060-11-07 07:30"},
		"Australia/Lord_Howe": {"15,45 1,2 * * *", "2060-10-02 15:20", "2060-10-02 15:30", "2061-04-02 14:20", "2061-04-02 14:45", "2061-04-02 15:15", "2061-04-02 15:45"},
	} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			h := newClock(t)
			h.set(t, c.before)
			h.create(t, "nightly", c.cron, zone, "queue")

			h.set(t, c.forward)
			first := c.forward + " ordered missed 0"
			h.await(t, "nightly", first)

			h.set(t, c.before)
			h.m.Stop(t, "hub")
			h.m.Start(t, "hub")
			h.set(t, c.forward)
			h.set(t, c.autumn)
			meshtest.Await(t, "what was missed", func() bool { return len(h.fires(t, "nightly")) == 2 })
			missed := h.fires(t, "nightly")[1]
			require.Regexp(t, ` ordered missed \d{3}$`, missed, "all of half a year is one")

			h.set(t, c.back)
			h.await(t, "nightly", first, missed, c.back+" ordered missed 0")
			h.set(t, c.again)
			require.Equal(t, c.next, h.next(t, "nightly"), "and not when the clock shows it again")
			h.set(t, c.next)
			h.await(t, "nightly", first, missed, c.back+" ordered missed 0", c.next+" ordered missed 0")
			require.Equal(t, 4, h.m.Hub.Count(t, `SELECT count(*) FROM mirrors WHERE schedule = 'nightly' AND created_by = 'schedule:nightly'`))
		})
	}
}

// A clock that is set a day ahead, and then back by an hour, orders once for the day, and nothing anew for the hour.
func TestAScheduleADayAheadAndAnHourBack(t *testing.T) {
	t.Parallel()
	h := newClock(t)
	h.set(t, "2060-06-01 12:30")
	h.create(t, "hourly", "0 * * * *", "UTC", "queue")

	h.set(t, "2060-06-02 12:30")
	day := "2060-06-01 13:00 ordered missed 23"
	h.await(t, "hourly", day)
	h.set(t, "2060-06-02 11:30")
	h.set(t, "2060-06-02 12:00")
	require.Equal(t, "2060-06-02 13:00", h.next(t, "hourly"))
	h.set(t, "2060-06-02 13:00")

	h.await(t, "hourly", day, "2060-06-02 13:00 ordered missed 0")
}

// A clock that was ahead by 2^31 seconds orders once for all that time.
func TestAScheduleOutlivesAClockThatIsFarAhead(t *testing.T) {
	t.Parallel()
	h := newClock(t)
	h.set(t, "2060-11-26 12:00")
	h.create(t, "often", "* * * * *", "UTC", "queue")

	h.set(t, "2128-12-15 15:14")
	h.await(t, "often", "2060-11-26 12:01 ordered missed 1000")
	h.set(t, "2060-11-26 12:05")
	h.m.Hub.Do(t, "PATCH", "/api/v1/schedules/often", api.ScheduleChange{State: api.ScheduleStatePaused, Reason: "the clock"}, nil)
	h.set(t, "2060-11-26 12:00")
	h.m.Hub.Do(t, "PATCH", "/api/v1/schedules/often", api.ScheduleChange{State: api.ScheduleStateActive}, nil)
	h.set(t, "2060-11-26 12:01")
	meshtest.Await(t, "that it is not due again", func() bool { return h.next(t, "often") == "2060-11-26 12:02" })
	h.set(t, "2060-11-26 12:02")

	h.await(t, "often", "2060-11-26 12:01 ordered missed 1000", "2060-11-26 12:02 ordered missed 0")
}

// What becomes of a schedule while its last agent has not ended is what it says.
func TestSchedulesThatOverlap(t *testing.T) {
	t.Parallel()
	h := newClock(t)
	h.set(t, "2060-11-26 12:00")
	for _, name := range []string{"skip", "queue", "replace"} {
		h.create(t, name, "0 * * * *", "UTC", name)
	}
	h.set(t, "2060-11-26 13:00")
	for _, name := range []string{"skip", "queue", "replace"} {
		h.await(t, name, "2060-11-26 13:00 ordered missed 0")
	}

	h.set(t, "2060-11-26 14:00")

	h.await(t, "skip", "2060-11-26 13:00 ordered missed 0", "2060-11-26 14:00 skipped missed 0")
	h.await(t, "queue", "2060-11-26 13:00 ordered missed 0", "2060-11-26 14:00 ordered missed 0")
	h.await(t, "replace", "2060-11-26 13:00 ordered missed 0", "2060-11-26 14:00 ordered missed 0")
	require.Equal(t, map[string]string{"skip": "0 of 1", "queue": "0 of 2", "replace": "1 of 2"},
		h.m.Hub.Pairs(t, `SELECT schedule, count(kill) || ' of ' || count(*) FROM mirrors GROUP BY schedule`), "killed")

	var skips api.Schedule
	h.m.Hub.Do(t, "GET", "/api/v1/schedules/skip", nil, &skips)
	var became api.FireList
	h.m.Hub.Do(t, "GET", "/api/v1/schedules/skip/fires", nil, &became)
	require.True(t, skips.LastFiredAt.Equal(became.Items[1].At), "what is skipped orders nothing")

	t.Run("it is run all the same when somebody asks", func(t *testing.T) {
		var v, again api.TaskCreated
		h.m.Hub.Do(t, "POST", "/api/v1/schedules/skip/run", nil, &v)
		require.Equal(t, "attic", v.Spoke)
		h.m.Hub.Do(t, "POST", "/api/v1/schedules/skip/run", nil, &again)
		require.NotEqual(t, v.ID, again.ID)
		var s api.Schedule
		h.m.Hub.Do(t, "GET", "/api/v1/schedules/skip", nil, &s)
		require.Equal(t, "2060-11-26 15:00", h.next(t, "skip"))
		require.Equal(t, again.ID, s.LastTask)
	})
}

// What cannot be ordered when it is due is said with the schedule, which goes on.
func TestAScheduleThatCannotBeOrdered(t *testing.T) {
	t.Parallel()
	h := newClock(t)
	h.set(t, "2060-11-26 12:00")
	h.create(t, "hourly", "@hourly", "UTC", "")
	h.m.Hub.Do(t, "POST", "/api/v1/connections/attic/revoke", map[string]string{"reason": "it was sold"}, nil)

	h.set(t, "2060-11-26 13:00")
	h.await(t, "hourly", "2060-11-26 13:00 refused missed 0")
	h.set(t, "2060-11-26 14:00")
	h.await(t, "hourly", "2060-11-26 13:00 refused missed 0", "2060-11-26 14:00 refused missed 0")

	var list api.ScheduleList
	h.m.Hub.Do(t, "GET", "/api/v1/schedules", nil, &list)
	s := list.Items[0]
	require.Equal(t, []string{"refused", "CONN_STATE"}, []string{s.Outcome, s.OutcomeCode})
	require.Contains(t, s.OutcomeWhy, "attic")
	meshtest.Await(t, "what is said of the second time", func() bool {
		return strings.Count(h.m.Hub.Log.String(), "schedule was due") == 2
	})
	require.Equal(t, 1, strings.Count(h.m.Hub.Log.String(), "schedule is refused and orders nothing"), "it is said once")

	var v api.FireList
	h.m.Hub.Do(t, "GET", "/api/v1/schedules/hourly/fires?limit=1", nil, &v)
	require.Contains(t, v.Items[0].Why, "attic")
	require.NotEmpty(t, v.Next)
	page := func(query string) (v api.FireList, err error) {
		err = h.m.Hub.Ask(t, "GET", "/api/v1/schedules/hourly/fires?"+query, nil, &v)
		return v, err
	}
	rest, err := page("limit=1000&cursor=" + v.Next)
	require.NoError(t, err)
	require.Len(t, rest.Items, 1)
	require.True(t, s.OutcomeSince.Equal(rest.Items[0].At), "since the first refusal")
	require.Empty(t, rest.Next)
	for _, query := range []string{"limit=0", "limit=1001", "cursor=x"} {
		_, err := page(query)
		require.Equal(t, commands.Validation, commands.CodeOf(err), query)
	}
	require.Contains(t, h.m.Hub.Ask(t, "POST", "/api/v1/schedules/hourly/run", nil, nil).Error(), "attic")
}

// What is wrong with a schedule is said when it is made.
func TestASchedulesThatIsRefused(t *testing.T) {
	t.Parallel()
	h := newClock(t)
	noop := api.NewTask{Runtime: api.Noop, Spoke: "attic"}
	h.create(t, "there", "@daily", "UTC", "")
	for want, v := range map[string]api.NewSchedule{
		`the hour "25" is not understood`:    {Name: "x", Cron: "0 25 * * *", Zone: "UTC", Task: noop},
		`time zone "Mars/Base" is not known`: {Name: "x", Cron: "@daily", Zone: "Mars/Base", Task: noop},
		"there is no such day in any year":   {Name: "x", Cron: "0 0 30 2 *", Zone: "UTC", Task: noop},
		`name "Not A Name" is not`:           {Name: "Not A Name", Cron: "@daily", Zone: "UTC", Task: noop},
		"a schedule named there is there":    {Name: "there", Cron: "@daily", Zone: "UTC", Task: noop},
		"is none of skip, queue and replace": {Name: "x", Cron: "@daily", Zone: "UTC", Overlap: "kill", Task: noop},
		"cellar":                             {Name: "x", Cron: "@daily", Zone: "UTC", Task: api.NewTask{Runtime: api.Noop, Spoke: "cellar"}},
		"has an id or an idempotency key":    {Name: "x", Cron: "@daily", Zone: "UTC", Task: api.NewTask{Runtime: api.Noop, IdempotencyKey: "k"}},
		"no command given":                   {Name: "x", Cron: "@daily", Zone: "UTC", Task: api.NewTask{Runtime: api.Exec}},
	} {
		err := h.m.Hub.Ask(t, "POST", "/api/v1/schedules", v, nil)
		require.ErrorContains(t, err, want)
		require.Contains(t, []commands.Code{commands.Validation, commands.Conflict, commands.NotFound}, commands.CodeOf(err), want)
	}
	require.ErrorContains(t, h.m.Hub.Ask(t, "GET", "/api/v1/schedules/nowhere", nil, nil), "there is no schedule")
	require.ErrorContains(t, h.m.Hub.Ask(t, "PATCH", "/api/v1/schedules/there", api.ScheduleChange{State: api.ScheduleStatePaused, Reason: " \t"}, nil), "needs a reason")
	require.ErrorContains(t, h.m.Hub.Ask(t, "PATCH", "/api/v1/schedules/there", api.ScheduleChange{Cron: "0 0 * * 9"}, nil), "day of the week")
}

// Values of a schedule are in no table as they are, and come to each agent.
func TestAScheduleKeepsValuesToItself(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	const secret = "open-sesame-4711"
	m.Hub.Do(t, "POST", "/api/v1/schedules", api.NewSchedule{Name: "backup", Cron: "0 0 1 1 *", Zone: "UTC", Task: api.NewTask{Runtime: api.Exec, Argv: []string{"sh", "-c", `echo "got $TOKEN" | tr a-z A-Z`},
		Env: []api.Variable{{Name: "TOKEN", Value: secret}}}}, nil)
	m.Stop(t, "hub")
	m.Start(t, "hub")
	m.AwaitLink(t, "attic")

	var v api.TaskCreated
	m.Hub.Do(t, "POST", "/api/v1/schedules/backup/run", nil, &v)
	got := m.Wait(t, v.ID)

	require.Equal(t, commands.Completed, got.State, "%s", got.Sentence())
	require.Contains(t, string(got.Result), "OPEN-SESAME-4711")
	require.Zero(t, m.Hub.Count(t, `SELECT count(*) FROM schedules s WHERE s::text LIKE '%' || $1 || '%'`, secret))
	require.NotContains(t, m.Hub.Log.String(), secret)
}
