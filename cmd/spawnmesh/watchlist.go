package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/wait"
)

// A watched list is shown again when the instance says that something in it has changed: on a
// terminal all of it in place, elsewhere what has changed.
type watched[T any] struct {
	list  func(ctx context.Context) ([]T, error)
	print func([]T) error
	key   func(T) string         // the id of a thing in it
	about func(api.Event) string // the id of what an event is about
}

// betweenLists is the least time between two lists: many events are one change.
const betweenLists = 300 * time.Millisecond

const clearScreen = "\x1b[H\x1b[2J"

// watchList shows a list until ctx ends.
func watchList[T any](ctx context.Context, a *app, c *control.Client, w watched[T]) error {
	inPlace := a.forPeople() && terminal(a.out)
	if a.output == "json" {
		a.output = "ndjson" // one thing a line: there is no end of the list
	}
	a.noPager = true // who pages does not see it change
	came, begun := make(chan string, 1), make(chan struct{})
	g, ctx := errgroup.WithContext(ctx)
	r := &eventReader{a: a, c: c, at: -1, begun: sync.OnceFunc(func() { close(begun) }), each: func(l api.EventLine, _ json.RawMessage) error {
		select {
		case came <- w.about(l.Event):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	g.Go(func() error { return r.follow(ctx) })
	g.Go(func() error {
		select {
		case <-begun: // what changes from here on is told; before, a list could miss it
		case <-ctx.Done():
			return ctx.Err()
		}
		for changed := []string(nil); ; {
			all, err := w.there(ctx)
			if err != nil {
				return err
			}
			list := w.those(all, changed, inPlace)
			if inPlace {
				fmt.Fprint(a.out, clearScreen)
			}
			if err := w.print(list); err != nil {
				return err
			}
			a.bare = !inPlace && (a.bare || len(list) > 0)
			if changed, err = changes(ctx, came); err != nil {
				return err
			}
		}
	})
	return g.Wait()
}

// there is the list, once the instance answers: who follows its events knows when to give up.
func (w watched[T]) there(ctx context.Context) ([]T, error) {
	for {
		list, err := w.list(ctx)
		if err == nil || !isAway(commands.CodeOf(err)) {
			return list, err
		}
		if err := wait.For(ctx, betweenLists); err != nil {
			return nil, err
		}
	}
}

// those are the ones of all that have changed or, where the list is shown in place, all.
func (w watched[T]) those(all []T, changed []string, inPlace bool) []T {
	if changed == nil || inPlace {
		return all
	}
	return slices.DeleteFunc(all, func(v T) bool { return !slices.Contains(changed, w.key(v)) })
}

// changes waits for something that has changed, and a little longer for what changes with it.
func changes(ctx context.Context, came <-chan string) (list []string, err error) {
	var over <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case key := <-came:
			if key != "" {
				list = append(list, key)
			}
			if over == nil && key != "" {
				over = time.After(betweenLists)
			}
		case <-over:
			return list, nil
		}
	}
}
