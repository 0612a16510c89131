// Package webhook tells programs by HTTP what the feed of an instance has.
//
// The database is the record: which events are to be told to whom, and how far that
// is. An event becomes one delivery to each webhook that wants it, in the transaction
// that moves the cursor of the webhook; a delivery is tried until its receiver has
// agreed, so it may come twice, with one id. What is sent is signed as Standard
// Webhooks 1.0.0 says, and goes to no address that only this host can reach.
package webhook

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/internal/feed"
	"github.com/spawnmesh/spawnmesh/internal/metrics"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

const (
	// lease is longer than a try takes: whoever has not noted by then what came of it has died.
	lease = 3 * tryTime
	// look is how often is looked at least for what another process has left or changed.
	look = 30 * time.Second
	// again is the time after which what failed here, and not at a receiver, is done again.
	again = 5 * time.Second
	// batch is the time in which deliveries that are due are claimed together.
	batch = 5 * time.Millisecond
	// more is how often is looked whether there is room for events that wait.
	more = time.Second
)

// A Sender tells the webhooks of a hub. Its exported fields are set before Open.
type Sender struct {
	Allow    []netip.Prefix // networks that receivers may be in, beside the public ones
	CA       *x509.CertPool // whose certificates receivers may have; nil = those that this host trusts
	Resolver *net.Resolver  // nil = that of this host

	DB       *store.DB
	Feed     *feed.Feed
	Secret   []byte // that keys are derived from
	Log      *slog.Logger
	Counters *metrics.Counters

	http     *http.Client
	changed  wait.Signal // a webhook was made or enabled
	due      wait.Signal // a delivery may be due
	lanes    lanes
	derived  sync.Map    // private keys by webhook and key id
	full     atomic.Bool // events wait until deliveries before them are taken
	noted    *store.Group[store.Delivered, struct{}]
	returned *store.Group[store.Trial, struct{}]
}

// Open prepares what Run does.
func (s *Sender) Open() {
	s.http, s.changed, s.due = s.client(), wait.NewSignal(), wait.NewSignal()
	s.noted = store.NewGroup(func(ctx context.Context, list []store.Delivered) ([]struct{}, error) {
		return make([]struct{}, len(list)), s.DB.NoteDelivered(context.WithoutCancel(ctx), list)
	})
	s.returned = store.NewGroup(func(ctx context.Context, list []store.Trial) ([]struct{}, error) {
		return make([]struct{}, len(list)), s.DB.ReturnDeliveries(context.WithoutCancel(ctx), list)
	})
}

// Changed says that another process may have changed something.
func (s *Sender) Changed() {
	s.changed.Send()
	s.due.Send()
}

// Run tells webhooks until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	noting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return s.noted.Run(noting) })
	g.Go(func() error { return s.returned.Run(noting) })
	g.Go(func() error { return s.plan(ctx) })
	g.Go(func() error { return s.refill(ctx) })
	g.Go(func() error { defer stop(); return s.deliver(ctx) })
	err := g.Wait()
	s.http.CloseIdleConnections()
	return err
}

// errNobody ends the following of events that no webhook is told.
var errNobody = errors.New("there is no webhook")

// plan makes deliveries of events. It follows them only while there is somebody to tell: the feed numbers them less often then.
func (s *Sender) plan(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.planAll(ctx)
		if err == nil {
			err = s.follow(ctx)
		}
		rest := again
		switch {
		case errors.Is(err, errNobody):
			rest = look
		case err != nil && ctx.Err() == nil:
			s.Log.ErrorContext(ctx, "planning what webhooks are told", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-time.After(rest):
		}
	}
	return nil
}

// planAll plans what is there.
func (s *Sender) planAll(ctx context.Context) error {
	p := planner
	for {
		done, err := s.DB.PlanDeliveries(ctx, p)
		if err != nil {
			return err
		}
		p.After = done.At
		s.full.Store(done.Full)
		switch {
		case done.Active == 0:
			return errNobody
		case !done.More:
			return nil
		}
		s.due.Send()
	}
}

// follow plans what comes.
func (s *Sender) follow(ctx context.Context) error {
	last, err := s.Feed.Since(ctx, feed.Now)
	if err != nil {
		return err
	}
	return s.Feed.Follow(ctx, last, true, feed.Reader{
		Event: func(feed.Told) error { return nil },
		Gap:   func(feed.Gap) error { return nil },
		Flush: func() error { return s.planAll(ctx) },
		Quiet: look,
	})
}

// refill plans what had no room, while deliveries are taken.
func (s *Sender) refill(ctx context.Context) error {
	for wait.For(ctx, more) == nil {
		if !s.full.Load() {
			continue
		}
		if err := s.planAll(ctx); err != nil && !errors.Is(err, errNobody) && ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "planning what webhooks are told", "err", err)
		}
	}
	return nil
}

// deliver tries what is due. Whoever is told slowly has a few tries at a time, and holds nobody up.
func (s *Sender) deliver(ctx context.Context) error {
	var trying sync.WaitGroup
	defer trying.Wait()
	var looked time.Time
	for ctx.Err() == nil {
		if time.Since(looked) >= look {
			s.waitAnew(ctx)
			s.derived.Clear() // of webhooks that are gone, and keys that were replaced
			looked = time.Now()
		}
		next, err := s.DB.NextDelivery(ctx, look)
		if err == nil && next <= 0 {
			var list []store.Trial
			until := time.Now().Add(lease - tryTime) // whoever begins later may not have noted it when the lease ends
			list, err = s.DB.ClaimDeliveries(ctx, lease)
			for _, t := range list {
				at := s.lanes.enter(t.Webhook.ID, until)
				trying.Go(func() { s.inTurn(ctx, t, at) })
			}
			next = batch
		}
		if err != nil && ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "looking for what webhooks are to be told", "err", err)
			next = again
		}
		if next == batch {
			_ = wait.For(ctx, batch)
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.due:
		case <-time.After(next):
		}
	}
	return nil
}

// waitAnew bounds what a clock of the database has put off that was ahead.
func (s *Sender) waitAnew(ctx context.Context) {
	if err := s.DB.WaitAnew(ctx, lease); err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "looking for what webhooks are to be told", "err", err)
	}
}
