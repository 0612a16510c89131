package node

import (
	"context"
	"strconv"
	"time"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/hub/webhook"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/metrics"
	"github.com/spawnmesh/spawnmesh/store"
)

// How many deliveries one answer has.
const (
	usualDeliveries = 50
	mostDeliveries  = 1000
)

// ListWebhooks implements [api.StrictServerInterface].
func (s resources) ListWebhooks(ctx context.Context, _ api.ListWebhooksRequestObject) (api.ListWebhooksResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	list, err := h.DB.Webhooks(ctx)
	if err != nil {
		return nil, err
	}
	items := make([]api.Webhook, len(list))
	for i, w := range list {
		if items[i], err = webhookOf(h, w); err != nil {
			return nil, err
		}
	}
	return api.ListWebhooks200JSONResponse{Items: items}, nil
}

// CreateWebhook implements [api.StrictServerInterface].
func (s resources) CreateWebhook(ctx context.Context, r api.CreateWebhookRequestObject) (api.CreateWebhookResponseObject, error) {
	v, err := s.webhook(func(h *hub.Hub) (store.Webhook, error) {
		b := r.Body
		return h.Webhooks.Create(ctx, webhook.New{Name: b.Name, URL: b.URL, Port: b.Port, Types: b.Types, States: b.States}, control.CallerOf(ctx).String())
	})
	if err == nil {
		v.Warning = s.n.Hub.Webhooks.Warning(ctx, r.Body.URL)
	}
	return api.CreateWebhook200JSONResponse{OneWebhookJSONResponse: v}, err
}

// GetWebhook implements [api.StrictServerInterface].
func (s resources) GetWebhook(ctx context.Context, r api.GetWebhookRequestObject) (api.GetWebhookResponseObject, error) {
	v, err := s.webhook(func(h *hub.Hub) (store.Webhook, error) { return h.DB.FindWebhook(ctx, r.Webhook) })
	return api.GetWebhook200JSONResponse{OneWebhookJSONResponse: v}, err
}

// ChangeWebhook implements [api.StrictServerInterface].
func (s resources) ChangeWebhook(ctx context.Context, r api.ChangeWebhookRequestObject) (api.ChangeWebhookResponseObject, error) {
	actor := control.CallerOf(ctx).String()
	v, err := s.webhook(func(h *hub.Hub) (store.Webhook, error) {
		return h.Webhooks.Change(ctx, r.Webhook, string(r.Body.State), r.Body.Reason, actor)
	})
	v.Already = r.Body.State == api.WebhookStateDisabled && (v.DisabledBy != actor || v.Why != r.Body.Reason)
	return api.ChangeWebhook200JSONResponse{OneWebhookJSONResponse: v}, err
}

// DeleteWebhook implements [api.StrictServerInterface].
func (s resources) DeleteWebhook(ctx context.Context, r api.DeleteWebhookRequestObject) (api.DeleteWebhookResponseObject, error) {
	v, err := s.webhook(func(h *hub.Hub) (store.Webhook, error) {
		return h.Webhooks.Remove(ctx, r.Webhook, control.CallerOf(ctx).String())
	})
	return api.DeleteWebhook200JSONResponse{OneWebhookJSONResponse: v}, err
}

// RotateWebhook implements [api.StrictServerInterface].
func (s resources) RotateWebhook(ctx context.Context, r api.RotateWebhookRequestObject) (api.RotateWebhookResponseObject, error) {
	v, err := s.webhook(func(h *hub.Hub) (store.Webhook, error) {
		return h.Webhooks.Rotate(ctx, r.Webhook, control.CallerOf(ctx).String())
	})
	return api.RotateWebhook200JSONResponse{OneWebhookJSONResponse: v}, err
}

// TestWebhook implements [api.StrictServerInterface].
func (s resources) TestWebhook(ctx context.Context, r api.TestWebhookRequestObject) (api.TestWebhookResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	d, err := h.Webhooks.Test(ctx, r.Webhook)
	return api.TestWebhook200JSONResponse{OneDeliveryJSONResponse: api.OneDeliveryJSONResponse(deliveryOf(d))}, err
}

// ResendDelivery implements [api.StrictServerInterface].
func (s resources) ResendDelivery(ctx context.Context, r api.ResendDeliveryRequestObject) (api.ResendDeliveryResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	d, err := h.Webhooks.Resend(ctx, r.Webhook, r.Delivery, control.CallerOf(ctx).String())
	return api.ResendDelivery200JSONResponse{OneDeliveryJSONResponse: api.OneDeliveryJSONResponse(deliveryOf(d))}, err
}

// ListDeliveries implements [api.StrictServerInterface].
func (s resources) ListDeliveries(ctx context.Context, r api.ListDeliveriesRequestObject) (api.ListDeliveriesResponseObject, error) {
	h, err := s.hub()
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(r.Params.Limit, usualDeliveries, mostDeliveries)
	if err != nil {
		return nil, err
	}
	before, err := seqOf(r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	w, err := h.DB.FindWebhook(ctx, r.Webhook)
	if err != nil {
		return nil, err
	}
	list, err := h.DB.Deliveries(ctx, w.ID, before, limit)
	page := api.DeliveryList{Items: mapped(list, deliveryOf)}
	if len(list) == limit {
		page.Next = cursorOf(strconv.FormatInt(list[limit-1].N, 10))
	}
	return api.ListDeliveries200JSONResponse(page), err
}

// webhook is what act returns, as the document has it.
func (s resources) webhook(act func(*hub.Hub) (store.Webhook, error)) (v api.OneWebhookJSONResponse, err error) {
	h, err := s.hub()
	if err != nil {
		return v, err
	}
	w, err := act(h)
	if err != nil {
		return v, err
	}
	one, err := webhookOf(h, w)
	return api.OneWebhookJSONResponse(one), err
}

func webhookOf(h *hub.Hub, w store.Webhook) (api.Webhook, error) {
	now, before, err := h.Webhooks.PublicKeys(w)
	return api.Webhook{ID: w.ID, Name: w.Name, URL: w.URL, Types: w.Types, States: w.States, State: api.WebhookState(w.State), Why: w.Why, DisabledBy: w.DisabledBy, DisabledAt: when(w.DisabledAt), PublicKey: now, OldPublicKey: before, OldPublicKeyUntil: when(w.OldKeyUntil),
		Failures: w.Failures, FailingSince: when(w.FailingSince), HeldUntil: when(w.HeldUntil), LastError: w.LastError, Pending: w.Pending, CreatedBy: w.CreatedBy, CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt}, err
}

func deliveryOf(d store.Delivery) api.Delivery {
	v := api.Delivery{ID: d.ID, Type: d.Type, At: d.At, State: api.DeliveryState(d.State), Tries: d.Tries, Status: d.Status, Error: d.Error, CreatedAt: d.CreatedAt, EndedAt: when(d.EndedAt)}
	if d.State == store.DeliveryPending {
		v.NextTryAt = d.NextTryAt
	}
	return v
}

// checkWebhooks names the webhooks that get nothing. Everybody with a token sees checks: what receivers answer is left out.
func (n *Node) checkWebhooks(ctx context.Context) (list []control.Check) {
	if n.Hub == nil {
		return nil
	}
	all, err := n.Instance.DB.Webhooks(ctx)
	if err != nil {
		return []control.Check{control.NewCheck("webhooks", err)}
	}
	for _, w := range all {
		c := control.Check{Name: "webhook " + w.Name}
		switch {
		case w.Restored():
			c.OK, c.Note = true, "disabled since the database was restored from a backup"
		case w.State == store.WebhookDisabled:
			c.OK, c.Note = true, "disabled; an owner sees why"
		case w.Broken():
			c.Problem, c.Run = "it fails since "+w.FailingSince.UTC().Format(time.RFC3339)+"; one delivery at a time is tried until one is taken; see", []string{"webhook", "show", w.Name}
		default:
			continue
		}
		list = append(list, c)
	}
	return list
}

// webhookFigures say whether webhooks are told.
func (n *Node) webhookFigures(r *metrics.Registry) {
	oldest := metrics.NewFigure("webhook_oldest_pending_seconds", "Age of the oldest event that a webhook is still to be told; 0 without one.", metrics.Gauge)
	hooks := metrics.NewFigure("webhooks", "Webhooks by how they do: failing (one delivery at a time is tried) and disabled.", metrics.Gauge, "state")
	r.Group("webhooks", figuresTime, fresh, func(ctx context.Context) ([]metrics.Reading, error) {
		f, err := n.Instance.DB.WebhookFigures(ctx)
		return []metrics.Reading{one(oldest, f.OldestPending.Seconds()), {Of: hooks, Value: float64(f.Broken), Labels: []string{"failing"}}, {Of: hooks, Value: float64(f.Disabled), Labels: []string{"disabled"}}}, err
	}, oldest, hooks)
}
