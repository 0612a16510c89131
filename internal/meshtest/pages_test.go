package meshtest

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// fiveOfEach is a hub that has five items of each list, and whose spoke is away.
func fiveOfEach(t *testing.T) *Instance {
	t.Helper()
	m := Start(t)
	m.Join(t, "attic")
	h := m.Hub.Instance
	h.Do(t, "POST", api.Base+"/schedules", api.NewSchedule{Name: "yearly", Cron: "@yearly", Zone: "UTC", Task: api.NewTask{Runtime: api.Noop, Spoke: "attic"}}, nil)
	for n := range 5 {
		h.Do(t, "POST", api.Base+"/schedules/yearly/run", nil, nil)
		h.Do(t, "POST", api.Base+"/workspaces/main/tasks", map[string]any{"items": []any{map[string]any{"key": fmt.Sprint("K", n), "title": "x"}}}, nil)
	}
	h.Exec(t, `INSERT INTO inquiries (conn, id, task, attempt, seq, question, options, fallback, data, asked_at, deadline)
		SELECT conn, task, task, 1, 1, 'may I?', '{}', '', '', now(), now() + interval '1 day' FROM mirrors`)
	h.Exec(t, `INSERT INTO webhooks (id, name, url, types, states, state, cursor, key, created_by, disabled_by, disabled_at)
		VALUES (gen_random_uuid(), 'pager', 'https://pager.example.org/in', '{}', '{}', 'disabled', 0, gen_random_uuid(), 'test', 'test', now())`)
	h.Exec(t, `INSERT INTO webhook_deliveries (id, webhook, type, body, at, state, ended_at)
		SELECT 'msg_' || n, w.id, 'agent.state_changed', '{}', now(), 'delivered', now() FROM webhooks w, generate_series(1, 5) AS n`)
	return h
}

// Whatever the limit, the pages of a list have each item once, in one order, and only the last one may have less than asked for.
func TestPagesOfEveryList(t *testing.T) {
	t.Parallel()
	h := fiveOfEach(t)
	for path, by := range map[string]string{"/tasks": "id", "/questions": "id", "/webhooks/pager/deliveries": "id", "/schedules/yearly/fires": "task", "/workspaces/main/tasks": "id"} {
		page := func(limit int, cursor string) (names []string, next string) {
			var v struct {
				Items []map[string]json.RawMessage
				Next  string
			}
			h.Do(t, "GET", fmt.Sprintf("%s%s?limit=%d&cursor=%s", api.Base, path, limit, cursor), nil, &v)
			for _, item := range v.Items {
				names = append(names, string(item[by]))
			}
			return names, v.Next
		}
		whole, none := page(1000, "")
		require.Len(t, whole, 5, path)
		require.Empty(t, none, path)
		for limit := 1; limit <= 6; limit++ {
			var got []string
			for cursor, more := "", true; more; more = cursor != "" {
				var names []string
				names, cursor = page(limit, cursor)
				require.True(t, len(names) == limit || cursor == "" && len(names) < limit, "%s by %d: %v", path, limit, names)
				got = append(got, names...)
				require.LessOrEqual(t, len(got), 5, "%s by %d", path, limit)
			}
			require.Equal(t, whole, got, "%s by %d", path, limit)
		}
	}
}
