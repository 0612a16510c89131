package webhook

import (
	"context"
	"crypto/ed25519"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Overlap is for how long the key before the last one signs, too.
const Overlap = 24 * time.Hour

// A New is a webhook that is to be made.
type New struct {
	Name, URL string
	Port      int      // that the URL names, where it is not 443
	Types     []string // none = changes of agents
	States    []string
}

// Create makes a webhook, which is told of what happens from now on.
func (s *Sender) Create(ctx context.Context, n New, actor string) (store.Webhook, error) {
	if err := n.check(); err != nil {
		return store.Webhook{}, err
	}
	if err := CheckURL(n.URL, n.Port, s.Allow); err != nil {
		return store.Webhook{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.Webhook{}, err
	}
	w := store.Webhook{ID: id.String(), Name: n.Name, URL: n.URL, Types: n.Types, States: n.States, Key: uuid.NewString(), CreatedBy: actor}
	if len(w.Types) == 0 {
		w.Types = []string{TaskStatusChanged}
	}
	if err := s.DB.AddWebhook(context.WithoutCancel(ctx), w); err != nil {
		return store.Webhook{}, err
	}
	s.changed.Send()
	return s.DB.FindWebhook(ctx, w.ID)
}

func (n *New) check() error {
	for _, t := range n.Types {
		if !slices.Contains(Types, t) {
			return commands.Refuse(commands.Validation, "webhooks are told of no %q", commands.Clip(t)).Hinting("they can be told of: %s", strings.Join(Types, ", "))
		}
	}
	for _, t := range n.States {
		if !slices.Contains(commands.States, commands.State(t)) {
			return commands.Refuse(commands.Validation, "no agent has the state %q", commands.Clip(t)).Hinting("those that end are: completed, failed, cancelled, expired, unavailable")
		}
	}
	if len(n.States) > 0 && len(n.Types) > 0 && !slices.Contains(n.Types, TaskStatusChanged) {
		return commands.Refuse(commands.Validation, "states are of agents, and the webhook is told of none").Hinting("let it be told of %s, too, or leave the states out", TaskStatusChanged)
	}
	n.Types, n.States = distinct(n.Types), distinct(n.States)
	return nil
}

func distinct(list []string) []string {
	return append([]string{}, slices.Compact(slices.Sorted(slices.Values(list)))...) // never nil, which is stored as null
}

// Change enables or disables a webhook.
func (s *Sender) Change(ctx context.Context, text, state, reason, actor string) (w store.Webhook, err error) {
	ctx = context.WithoutCancel(ctx)
	if err := commands.CheckReason(reason); err != nil {
		return w, err
	}
	switch state {
	case store.WebhookActive:
		w, err = s.DB.EnableWebhook(ctx, text, reason, actor, planner)
		s.Changed()
	case store.WebhookDisabled:
		if strings.TrimSpace(reason) == "" {
			return w, commands.Refuse(commands.Validation, "to disable a webhook needs a reason").Hinting("give one; it is shown with the webhook")
		}
		if w, err = s.DB.DisableWebhook(ctx, text, reason, actor); err == nil {
			s.lanes.giveBack(w.ID)
		}
	default:
		err = commands.Refuse(commands.Validation, "state %q is neither active nor disabled", commands.Clip(state))
	}
	return w, err
}

// Remove forgets a webhook: what waits for it is not sent any more.
func (s *Sender) Remove(ctx context.Context, text, actor string) (store.Webhook, error) {
	w, err := s.DB.RemoveWebhook(context.WithoutCancel(ctx), text, actor)
	if err == nil {
		s.lanes.giveBack(w.ID)
	}
	return w, err
}

// Rotate has a webhook signed by a new key; that of before signs, too, for [Overlap].
func (s *Sender) Rotate(ctx context.Context, text, actor string) (store.Webhook, error) {
	return s.DB.RotateWebhook(context.WithoutCancel(ctx), text, uuid.NewString(), Overlap, actor)
}

// Test sends a message to a webhook, also to one that is disabled, and returns what came of it.
func (s *Sender) Test(ctx context.Context, text string) (d store.Delivery, err error) {
	w, err := s.DB.FindWebhook(ctx, text)
	if err != nil {
		return d, err
	}
	t, err := s.DB.BeginTest(ctx, w.ID, "test_"+strings.ReplaceAll(uuid.NewString(), "-", ""), message(webhookTest, time.Now(), testData{w.Name}))
	if err != nil {
		return d, err
	}
	ctx = context.WithoutCancel(ctx)
	a := s.send(ctx, t)
	if err := s.DB.EndTest(ctx, t, a.status, a.err); err != nil {
		return d, err
	}
	if a.err != "" {
		s.Counters.Delivered(GivenUp)
	} else if err := s.delivered(ctx, t, true); err != nil {
		return d, err
	}
	s.due.Send()
	return s.DB.FindDelivery(ctx, w.ID, t.ID)
}

// Resend makes a delivery due again, under its id.
func (s *Sender) Resend(ctx context.Context, text, id, actor string) (store.Delivery, error) {
	d, err := s.DB.ResendDelivery(context.WithoutCancel(ctx), text, id, actor)
	s.due.Send()
	return d, err
}

// keys are those that sign what w is told.
func (s *Sender) keys(w store.Webhook) (list []ed25519.PrivateKey, err error) {
	for _, id := range []string{w.Key, w.OldKey} {
		if id == "" {
			continue
		}
		k, err := s.key(w.ID, id)
		if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	return list, nil
}

// key is one of them. To derive it takes as long as to sign with it, so it is done once.
func (s *Sender) key(webhook, id string) (ed25519.PrivateKey, error) {
	name := [2]string{webhook, id}
	if k, ok := s.derived.Load(name); ok {
		return k.(ed25519.PrivateKey), nil
	}
	k, err := privateKey(s.Secret, webhook, id)
	if err == nil {
		s.derived.Store(name, k)
	}
	return k, err
}

// PublicKeys are the keys by which a receiver knows what w is told: that of now, and the one before it while that signs, too.
func (s *Sender) PublicKeys(w store.Webhook) (now, before string, err error) {
	list, err := s.keys(w)
	if err != nil {
		return "", "", err
	}
	now = publicText(list[0])
	if len(list) > 1 {
		before = publicText(list[1])
	}
	return now, before, nil
}
