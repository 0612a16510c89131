package meshtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// A delivery that is over, taken or not, has no next try.
func TestWhatIsDeliveredHasNoNextTry(t *testing.T) {
	t.Parallel()
	h := Start(t).Hub
	h.Exec(t, `INSERT INTO webhooks (id, name, url, types, states, state, cursor, key, created_by, disabled_by, disabled_at)
		VALUES (gen_random_uuid(), 'pager', 'https://pager.example.org/in', '{}', '{}', 'disabled', 0, gen_random_uuid(), 'test', 'test', now())`)
	h.Exec(t, `INSERT INTO webhook_deliveries (id, webhook, type, body, at, state, ended_at)
		SELECT 'msg_' || s, w.id, 'agent.state_changed', '{}', now(), s, CASE WHEN s <> 'pending' THEN now() END FROM webhooks w, unnest('{pending,delivered,failed}'::text[]) AS s`)

	var list api.DeliveryList
	h.Do(t, "GET", api.Base+"/webhooks/pager/deliveries", nil, &list)

	require.Len(t, list.Items, 3)
	for _, d := range list.Items {
		require.Equal(t, d.State == "pending", !d.NextTryAt.IsZero(), d.State)
		require.Equal(t, d.State == "pending", d.EndedAt.IsZero(), d.State)
	}
}
