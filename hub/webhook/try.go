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

// inTurn sends a delivery that was claimed when it is its turn, and notes what came of it, also where everything is to stop.
func (s *Sender) inTurn(ctx context.Context, t store.Trial, at place) {
	noting := context.WithoutCancel(ctx)
	var err error
	if !at.wait(ctx) {
		_, err = s.returned.Submit(noting, t)
	} else {
		a := s.send(ctx, t)
		at.tried(a.err != "")
		err = s.note(noting, t, a, ctx.Err() != nil)
	}
	if err != nil { // it is tried again when its lease is over
		s.Log.ErrorContext(ctx, "noting what came of a delivery", "webhook", t.Webhook.Name, "id", t.ID, "err", err)
	}
	if at.leave() {
		s.due.Send()
	}
}

// note notes what came of a try. One that failed while everything is to stop says nothing about the receiver.
func (s *Sender) note(ctx context.Context, t store.Trial, a answer, stopping bool) error {
	switch {
	case a.err == "":
		if _, err := s.noted.Submit(ctx, store.Delivered{Trial: t, Status: a.status}); err != nil {
			return err
		}
		return s.delivered(ctx, t, false)
	case stopping:
		_, err := s.returned.Submit(ctx, t)
		return err
	default:
		return s.failed(ctx, t, a)
	}
}

// delivered counts a try that was successful and noted, and ends what failures before it have begun.
func (s *Sender) delivered(ctx context.Context, t store.Trial, test bool) error {
	s.Counters.Delivered(Delivered)
	if t.Webhook.Failures == 0 && !test {
		return nil
	}
	was, err := s.DB.NoteAnswers(ctx, t.Webhook.ID, test)
	if was {
		s.Log.InfoContext(ctx, "webhook answers again", "webhook", t.Webhook.Name)
	}
	return err
}

// failed notes a try that failed. While the webhook is broken, tries are few and close: they give no delivery up, the end of
// the patience with the webhook does.
func (s *Sender) failed(ctx context.Context, t store.Trial, a answer) error {
	last := t.Tries >= mostTries && !t.Webhook.Broken()
	disabled := ""
	w, err := s.DB.NoteFailure(ctx, store.Failure{Trial: t, Status: a.status, Error: a.err, Last: last, Again: max(pause(t.Tries), min(a.after, longestAsked)),
		Hold: func(failures int) time.Duration { return hold(failures, a.after) },
		Disable: func(failing time.Duration) string {
			switch {
			case a.status == http.StatusGone:
				disabled = "its receiver answered 410: it wants nothing more"
			case failing > patience:
				disabled = "it has failed for " + commands.Lasting(patience) // the audit has it: no words of a receiver
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
		s.Log.WarnContext(ctx, "webhook was disabled", "webhook", t.Webhook.Name, "why", disabled, "err", a.err)
	case w.Failures == store.BreakAfter:
		s.Log.WarnContext(ctx, "webhook fails; one delivery at a time is tried until one is taken", "webhook", w.Name, "failures", w.Failures, "err", a.err)
	}
	return nil
}
