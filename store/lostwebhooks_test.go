package store_test

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

func init() { maps.Copy(writing, writingWebhooks) }

func aWebhook() store.Webhook {
	return store.Webhook{ID: storetest.NewID(), Name: "pager", URL: "https://pager.example.org/in", Types: []string{"task"}, States: []string{}, Key: storetest.NewID(), CreatedBy: "test"}
}

// aPlanner tells each webhook everything.
var aPlanner = store.Planner{
	Wants: func(store.Webhook, store.Event) bool { return true },
	Tell: func(e store.Event) store.Message {
		return store.Message{Prefix: "msg", Number: strconv.FormatInt(e.Seq, 10), First: e.Seq, Type: "task", Body: "{}", At: e.At}
	},
	Gap: func(from, to int64, at time.Time) store.Message {
		return store.Message{Prefix: "gap", Number: strconv.FormatInt(to, 10), First: from, Type: "gap", Body: "{}", At: at}
	},
}

// hooked has a webhook and events that it is to be told of.
func (s scene) hooked() string {
	w := aWebhook()
	require.NoError(s, s.DB.AddWebhook(s.Context(), w))
	for range 3 {
		require.NoError(s, s.DB.NoteEvent(s.Context(), store.LinkEvent, "", "up"))
	}
	_, _, err := s.DB.NumberEvents(s.Context(), 10)
	require.NoError(s, err)
	return w.ID
}

func (s scene) planned() string {
	id := s.hooked()
	_, err := s.DB.PlanDeliveries(s.Context(), aPlanner)
	require.NoError(s, err)
	return id
}

func (s scene) trial() store.Trial {
	s.planned()
	list, err := s.DB.ClaimDeliveries(s.Context(), time.Minute)
	require.NoError(s, err)
	return list[0]
}

var writingWebhooks = map[string]func(s scene) storetest.Act{
	"DB.AddWebhook": func(scene) storetest.Act {
		w := aWebhook()
		return func(ctx context.Context, s *storetest.Side) (any, error) { return nil, s.DB.AddWebhook(ctx, w) }
	},
	"DB.DisableWebhook": func(s scene) storetest.Act {
		id := s.planned()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			w, err := s.DB.DisableWebhook(ctx, id, "why", "test")
			return w.State, err
		}
	},
	"DB.EnableWebhook": func(s scene) storetest.Act {
		id := s.hooked()
		_, err := s.DB.DisableWebhook(s.Context(), id, "why", "test")
		require.NoError(s, err)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			w, err := s.DB.EnableWebhook(ctx, id, "", "test", aPlanner)
			return w.State, err
		}
	},
	"DB.RotateWebhook": func(s scene) storetest.Act {
		id, key := s.hooked(), storetest.NewID()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			w, err := s.DB.RotateWebhook(ctx, id, key, time.Hour, "test")
			return w.Key, err
		}
	},
	"DB.RemoveWebhook": func(s scene) storetest.Act {
		id := s.planned()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			w, err := s.DB.RemoveWebhook(ctx, id, "test")
			return w.Name, err
		}
	},
	"DB.PlanDeliveries": func(s scene) storetest.Act {
		s.hooked()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.PlanDeliveries(ctx, aPlanner)
		}
	},
	"DB.ClaimDeliveries": func(s scene) storetest.Act {
		s.planned()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			list, err := s.DB.ClaimDeliveries(ctx, time.Minute)
			return len(list), err
		}
	},
	"DB.WaitAnew": func(s scene) storetest.Act {
		s.fails(s.trial())
		s.isSetBack()
		return func(ctx context.Context, s *storetest.Side) (any, error) { return nil, s.DB.WaitAnew(ctx, time.Minute) }
	},
	"DB.NoteDelivered": func(s scene) storetest.Act {
		t := s.trial()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.NoteDelivered(ctx, []store.Delivered{{Trial: t, Status: 204}})
		}
	},
	"DB.NoteFailure": func(s scene) storetest.Act {
		t := s.trial()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			w, err := s.DB.NoteFailure(ctx, store.Failure{Trial: t, Error: "no", Again: time.Minute, Hold: func(int) time.Duration { return 0 }, Disable: func(time.Duration) string { return "" }})
			return w.Failures, err
		}
	},
	"DB.NoteAnswers": func(s scene) storetest.Act {
		id := s.planned()
		require.NoError(s, s.Exec(`UPDATE webhooks SET failures = 7, failing_since = clock_timestamp()`))
		return func(ctx context.Context, s *storetest.Side) (any, error) { return s.DB.NoteAnswers(ctx, id, true) }
	},
	"DB.ReturnDeliveries": func(s scene) storetest.Act {
		t := s.trial()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.ReturnDeliveries(ctx, []store.Trial{t})
		}
	},
	"DB.BeginTest": func(s scene) storetest.Act {
		id := s.hooked()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			t, err := s.DB.BeginTest(ctx, id, "test_1", store.Message{Type: "test", Body: "{}", At: time.Now()})
			return t.ID, err
		}
	},
	"DB.EndTest": func(s scene) storetest.Act {
		t, err := s.DB.BeginTest(s.Context(), s.hooked(), "test_1", store.Message{Type: "test", Body: "{}", At: time.Now()})
		require.NoError(s, err)
		return func(ctx context.Context, s *storetest.Side) (any, error) { return nil, s.DB.EndTest(ctx, t, 204, "") }
	},
	"DB.ResendDelivery": func(s scene) storetest.Act {
		t := s.trial()
		require.NoError(s, s.DB.NoteDelivered(s.Context(), []store.Delivered{{Trial: t, Status: 204}}))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			d, err := s.DB.ResendDelivery(ctx, t.Webhook.ID, t.ID, "test")
			return d.State, err
		}
	},
}
