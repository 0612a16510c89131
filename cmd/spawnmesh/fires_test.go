package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store"
)

// A due is a hub with a schedule, and a look at its database.
type due struct {
	*fleet.Mesh
	url string
	sql *pgx.Conn
}

func startDue(t *testing.T) due {
	t.Helper()
	url := aServer(t)
	m := hubOn(t, url)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s"))
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(url))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	require.NoError(t, m.Ctl.Do(t.Context(), "POST", "/api/v1/schedules", api.NewSchedule{Name: "often", Cron: "0 0 1 1 *", Zone: "UTC", Overlap: api.Queue, Task: api.NewTask{Runtime: api.Noop, Spoke: "attic"}}, nil))
	return due{m, url, conn}
}

// make has the schedule be due since a year before n years, and tells all hubs.
func (d due) make(t *testing.T, n int) {
	t.Helper()
	_, err := d.sql.Exec(t.Context(), `UPDATE schedules SET next_due_at = make_timestamptz(2026 - $1, 1, 1, 0, 0, 0, 'UTC')`, n)
	require.NoError(t, err)
	_, err = d.sql.Exec(t.Context(), `NOTIFY `+store.ChangedChannel)
	require.NoError(t, err)
}

// await waits until it was due n times, and sees that each time ordered one agent.
func (d due) await(t *testing.T, n int) {
	t.Helper()
	var fires, ordered, tasks int
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the schedule", func() (bool, error) {
		err := d.sql.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE outcome = 'ordered'), (SELECT count(*) FROM mirrors) FROM schedule_fires`).Scan(&fires, &ordered, &tasks)
		return fires >= n, err
	}))
	require.Equal(t, []int{n, n, n}, []int{fires, ordered, tasks})
}

// A hub that is killed while it orders what a schedule has orders it once: before the commit, after the restart; after the
// commit, not again.
func TestAHubThatIsKilledOrdersWhatIsDueOnce(t *testing.T) {
	t.Parallel()
	d := startDue(t)
	for n, point := range []string{"before firing a schedule", "after firing a schedule"} {
		once := filepath.Join(t.TempDir(), "died")
		require.NoError(t, d.Hub.Stop(t.Context()))
		d.Hub.Env = []string{"DATABASE_URL=" + d.url, "SPAWNMESH_CRASH=" + point, "SPAWNMESH_CRASH_ONCE=" + once}
		d.make(t, n)
		restart(t, d.Hub, once)
		require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the step "+point, func() (bool, error) {
			_, err := os.Stat(once)
			return err == nil, nil
		}))
		if d.Hub.Cmd != nil {
			d.Hub.Wait()
		}

		if d.Hub.Cmd == nil {
			require.NoError(t, d.Hub.Start(t.Context()))
		}

		d.await(t, n+1)
	}
}

// Two processes serve one database, and are told at the same moment that something is due.
func TestTwoHubsOrderWhatIsDueOnce(t *testing.T) {
	t.Parallel()
	d := startDue(t)
	second := d.Process("second", "hub", "run", "--link", "127.0.0.1:0", "--name", "lab")
	second.Env = d.Hub.Env
	require.NoError(t, os.Mkdir(second.Dir, 0o711))
	out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(d.Hub.Dir, "keys"), second.Dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, second.Stop(context.Background())) })
	hand{t: t, dir: second.Dir, env: second.Env}.do("schedule", "resume", "--all") // a database in another directory counts as restored

	for n := range 10 {
		d.make(t, n)
		d.await(t, n+1)
	}
}

// A schedule that is refused when it is due says so wherever it is shown, until it orders again or is paused.
func TestAScheduleThatIsRefusedSaysSo(t *testing.T) {
	t.Parallel()
	d := startDue(t)
	h := hand{t: t, dir: d.Hub.Dir, env: d.Hub.Env}
	fires := 0
	due := func() {
		fires++
		d.make(t, fires)
		meshtest.Await(t, "that it was due", func() bool {
			var n int
			require.NoError(t, d.sql.QueryRow(t.Context(), `SELECT count(*) FROM schedule_fires`).Scan(&n))
			return n == fires
		})
	}
	listed := func(outcome string) {
		require.Regexp(t, `(?m)^often +active .* `+outcome+`$`, h.do("schedule", "list"))
	}
	listed(`- +-`)
	h.do("freeze", "--scope", "instance", "--reason", "bad deploy")
	due()
	due()

	listed(`- +refused: FROZEN, since [-0-9]{10} [:0-9]{5} UTC`)
	require.Regexp(t, `(?m)^outcome +refused: FROZEN, since .* UTC: .*bad deploy`, h.do("schedule", "show", "often"))
	got := h.run("", "doctor")
	require.Equal(t, 1, got.code)
	require.Regexp(t, `(?m)^refused schedules +WRONG: 1 of 1 order nothing: often is refused \(since .*\) \(FROZEN: .*bad deploy.*\); see: .* schedule list$`, got.out)

	h.do("schedule", "pause", "often", "--reason", "it is known")
	require.NotContains(t, h.run("", "doctor").out, "refused schedules", "it is meant to order nothing")
	h.do("schedule", "resume", "often")
	h.do("unfreeze", "--scope", "instance", "--reason", "over")

	got = h.run("", "doctor")
	require.NotContains(t, got.out, "WRONG: 1 of 1 order", "what refused it is over")
	require.Regexp(t, `(?m)^refused schedules +the last time of 1 of 1 was refused, and what refused it is over: often \(FROZEN: .*bad deploy.*\); next try at .*; now: .* schedule run often$`, got.out)
	due()

	listed(`[-0-9]{10} [:0-9]{5} UTC +ordered, [a-z]+`)
	require.NotContains(t, h.run("", "doctor").out, "refused schedules")
}

// A schedule says how the agent stands that it has ordered last: one whose every agent fails is not well.
func TestAScheduleSaysHowItsAgentEnded(t *testing.T) {
	t.Parallel()
	d := startDue(t)
	h := hand{t: t, dir: d.Hub.Dir, env: d.Hub.Env}
	h.do("schedule", "delete", "often", "--yes")
	h.do("schedule", "create", "bad", "--cron", "0 0 1 1 *", "--spoke", "attic", "--", "/bin/sh", "-c", "exit 4")
	id := strings.TrimSpace(h.do("schedule", "run", "bad"))
	h.until(id, func(v hub.AgentView) bool { return v.State == "failed" })

	require.Regexp(t, `(?m)^bad +active .* ordered, failed: exit 4\b`, h.do("schedule", "list", "-o", "wide"))
	require.Regexp(t, `(?m)^outcome +ordered, failed: exit 4$`, h.do("schedule", "show", "bad"))
	require.Regexp(t, `(?m)^when asked +ordered, failed: exit 4 +`+id, h.do("schedule", "fires", "bad"))
	require.Regexp(t, `(?m)^failing schedules +the last agent of 1 of 1 ended without success: that of bad is failed: exit 4; see: .* schedule fires bad$`, h.run("", "doctor").out)

	h.do("schedule", "pause", "bad", "--reason", "it is known")
	require.NotContains(t, h.run("", "doctor").out, "failing schedules", "it is meant to order nothing")
}
