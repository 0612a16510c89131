package hub_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

// A schedule whose connection has ended says that nothing will come of it, and why: before it is due.
func TestAScheduleWithoutASpokeSaysSo(t *testing.T) {
	t.Parallel()
	conn := func(name string, state store.ConnState, reason string) store.Connection {
		return store.Connection{Name: name, State: state, Reason: reason, Authority: store.Commands}
	}
	const none = "this hub has no spoke that could take the order"
	attic, sold := conn("attic", store.Active, ""), conn("attic", store.Revoked, "sold")
	left, lab := conn("attic", store.Rejected, "left"), store.Connection{Name: "attic", State: store.Active, Authority: store.Obeys}
	tests := map[string]struct {
		s    store.Schedule
		all  []store.Connection
		want string
	}{
		"its spoke is there":         {store.Schedule{Template: store.Template{Spoke: "attic"}}, []store.Connection{attic}, ""},
		"it is suspended":            {store.Schedule{Template: store.Template{Spoke: "attic"}}, []store.Connection{conn("attic", store.Suspended, "holiday")}, ""},
		"it was revoked":             {store.Schedule{Template: store.Template{Spoke: "attic"}}, []store.Connection{conn("cellar", store.Active, ""), sold}, "the connection with attic is revoked: sold"},
		"the newest end counts":      {store.Schedule{Template: store.Template{Spoke: "attic"}}, []store.Connection{sold, left}, "the connection with attic is rejected: left"},
		"it has joined again":        {store.Schedule{Template: store.Template{Spoke: "attic"}}, []store.Connection{sold, attic}, ""},
		"a hub of that name":         {store.Schedule{Template: store.Template{Spoke: "attic"}}, []store.Connection{sold, lab}, "the connection with attic is revoked: sold"},
		"any, and there is one":      {store.Schedule{Template: store.Template{Any: true}}, []store.Connection{sold, attic}, ""},
		"any, and there is none":     {store.Schedule{Template: store.Template{Any: true}}, []store.Connection{sold}, none},
		"the only one, and it ended": {store.Schedule{}, []store.Connection{sold}, none},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.s.State = store.ScheduleActive
			require.Equal(t, tt.want, hub.OrdersNothing(tt.s, tt.all))
			tt.s.State = store.SchedulePaused
			require.Empty(t, hub.OrdersNothing(tt.s, tt.all), "it is meant to order nothing")
		})
	}
}
