package webhook

import (
	"context"
	"net/http"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// What came of a try, for metrics.
const (
	Delivered = "delivered"
	Retried   = "retried" // it failed, and another one follows
	GivenUp   = "given_up"
)

// Outcomes are all of them.
var Outcomes = []string{Delivered, Retried, GivenUp}

// try sends a delivery that was claimed, and notes what came of it, also where everything is to stop.
func (s *Sender) try(ctx context.Context, t store.Trial) {
	a := s.send(ctx, t)
	noting := context.WithoutCancel(ctx)
	var err error
	switch {
	case a.err == "":
		if _, err = s.noted.Submit(noting, store.Delivered{Trial: t, Status: a.status}); err == nil {
			err = s.delivered(noting, t)
		}
	case ctx.Err() != nil:
		err = s.DB.ReturnDelivery(noting, t)
	default:
		err = s.failed(noting, t, a, false)
	}
	if err != nil { // it is tried again when its lease is over
		s.Log.ErrorContext(ctx, "noting what came of a delivery", "webhook", t.Webhook.Name, "id", t.ID, "err", err)
	}
	s.due.Send()
}

// delivered counts a try that was successful and noted, and ends what failures before it have begun.
func (s *Sender) delivered(ctx context.Context, t store.Trial) error {
	s.Counters.Delivered(Delivered)
	if t.Webhook.Failures == 0 {
		return nil
	}
	was, err := s.DB.NoteAnswers(ctx, t.Webhook.ID)
	if was {
		s.Log.InfoContext(ctx, "webhook answers again", "webhook", t.Webhook.Name)
	}
	return err
}

// failed notes a try that failed. A test is tried once, and says nothing about what else there is to send. While the webhook
// is broken, tries are few and close: they give no delivery up, the end of the patience with the webhook does.
func (s *Sender) failed(ctx context.Context, t store.Trial, a answer, test bool) error {
	last := test || t.Tries >= mostTries && !t.Webhook.Broken()
	disabled := ""
	w, err := s.DB.NoteFailure(ctx, store.Failure{Trial: t, Status: a.status, Error: commands.Clean(a.err, 500), Last: last, Again: max(pause(t.Tries), min(a.after, longestAsked)), Apart: test,
		Hold: func(failures int) time.Duration { return hold(failures, a.after) },
		Disable: func(failing time.Duration) string {
			switch {
			case a.status == http.StatusGone:
				disabled = "its receiver answered 410: it wants nothing more"
			case failing > patience:
				disabled = "it has failed for " + commands.Lasting(patience) + "; the last time: " + commands.Clean(a.err, 500)
			}
			return disabled
		}})
	if err != nil {
		return err
	}
	if last {
		s.Counters.Delivered(GivenUp)
	} else {
		s.Counters.Delivered(Retried)
	}
	switch {
	case disabled != "":
		s.Log.WarnContext(ctx, "webhook was disabled", "webhook", t.Webhook.Name, "why", disabled)
	case w.Failures == store.BreakAfter && !test:
		s.Log.WarnContext(ctx, "webhook fails; one delivery at a time is tried until one is taken", "webhook", w.Name, "failures", w.Failures, "err", a.err)
	}
	return nil
}
