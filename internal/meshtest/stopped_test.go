package meshtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// stopped says how something of a hub is stopped: by the hub or somebody else ($1, because of $2), and by who asks.
type stopped struct {
	name, action string
	sql          string
	method, path string
	body         func(reason string) any
}

// saidStopped is what the answer says, whatever was stopped.
type saidStopped struct {
	Already, Restored bool
	Reason, Why       string
	By                string
	PausedBy          string `json:"paused_by"`
	DisabledBy        string `json:"disabled_by"`
}

// What this hub has stopped of its own, as after a restore, a person may stop, too: it is then stopped by the person, with that reason, in
// the audit, and goes on with nothing that the hub lets go on. What a person has stopped stays as it is, and who stops it again is told.
func TestAPersonsStopTakesThePlaceOfTheHubs(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	h := m.Hub.Instance
	h.Do(t, "POST", "/api/v1/schedules", api.NewSchedule{Name: "hold", Cron: "@yearly", Zone: "UTC", Task: api.NewTask{Runtime: api.Noop, Spoke: "attic"}}, nil)
	h.Do(t, "POST", "/api/v1/webhooks", api.NewWebhook{Name: "other", URL: "https://other.invalid/in", Types: []string{"connection.state_changed"}}, nil)
	for _, s := range []stopped{
		{"hold", "schedule.paused", `UPDATE schedules SET state = 'paused', next_due_at = NULL, paused_by = $1, why = $2, restored = $1 = 'self', paused_at = now()`, "PATCH", "/api/v1/schedules/hold",
			func(reason string) any { return api.ScheduleChange{State: api.ScheduleStatePaused, Reason: reason} }},
		{"other", "webhook.disabled", `UPDATE webhooks SET state = 'disabled', disabled_by = $1, why = $2, disabled_at = now()`, "PATCH", "/api/v1/webhooks/other",
			func(reason string) any { return api.WebhookChange{State: api.WebhookStateDisabled, Reason: reason} }},
		{"attic", "connection.suspended", `UPDATE connections SET state = 'suspended', state_by = $1, state_reason = $2`, "POST", "/api/v1/connections/attic/suspend",
			func(reason string) any { return api.Reason{Reason: reason} }},
	} {
		says := func(reason string) (v saidStopped) {
			h.Do(t, s.method, s.path, s.body(reason), &v)
			require.Equal(t, 1, h.Count(t, `SELECT count(*) FROM audit WHERE action = $1 AND object = $2 AND actor LIKE 'uid:%'`, s.action, s.name), s.name)
			return v
		}
		for _, by := range []string{"self", "token:bob"} {
			h.Exec(t, s.sql, by, "restored")
			for range 2 { // as who has lost the answer asks again
				v := says("restored")
				require.Equal(t, by != "self", v.Already, "%s by %s", s.name, by)
				require.Equal(t, by != "self", v.By+v.PausedBy+v.DisabledBy == by, "%s by %s", s.name, by)
				require.False(t, v.Restored)
			}
			v := says("another")
			require.Equal(t, []any{true, "restored"}, []any{v.Already, v.Reason + v.Why}, "%s by %s", s.name, by)
		}
	}
	h.Exec(t, `UPDATE connections SET state_by = 'numbers'`)
	h.Do(t, "POST", "/api/v1/connections/attic/suspend", api.Reason{Reason: "over"}, nil)
	require.ErrorContains(t, h.Ask(t, "POST", "/api/v1/connections/attic/resync", nil, nil), "is suspended: over")
}
