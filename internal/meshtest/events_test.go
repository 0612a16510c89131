package meshtest

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/spoke/door"
)

// A follower follows the events of a hub: where a stream is cut off, it goes on behind the last
// one that it had.
type follower struct {
	mu     sync.Mutex // guards the rest
	events []api.Event
	at     int64
	wrong  error
	cuts   int
}

func (m *Mesh) followEvents(t testing.TB) (f *follower) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	f = &follower{}
	ended := make(chan struct{})
	began := make(chan struct{})
	first := sync.OnceFunc(func() { close(began) })
	go func() {
		defer close(ended)
		path := "/api/v1/events?follow=true"
		for ctx.Err() == nil {
			_ = m.Hub.client.Follow(ctx, path, func(raw json.RawMessage) error { defer first(); return f.take(raw) })
			f.mu.Lock()
			f.cuts++
			path = fmt.Sprintf("/api/v1/events?follow=true&since=%d", f.at)
			f.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-began
	return f
}

func (f *follower) take(raw json.RawMessage) error {
	var l api.EventLine
	if err := json.Unmarshal(raw, &l); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case l.Position != nil && f.at == 0:
		f.at = *l.Position
	case l.Position != nil && *l.Position != f.at:
		f.wrong = fmt.Errorf("it goes on after %d, and not after %d", *l.Position, f.at)
	case l.Position == nil && l.Event.Seq != f.at+1:
		f.wrong = fmt.Errorf("%s after %d", raw, f.at)
	case l.Position == nil:
		f.at = l.Event.Seq
		f.events = append(f.events, l.Event)
	}
	return f.wrong
}

// of is what has come about one thing, one line each.
func (f *follower) of(which func(api.Event) bool) (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if which(e) {
			list = append(list, e.State)
		}
	}
	return list
}

// awaitLast waits until the newest thing that has come about one thing is state.
func (f *follower) awaitLast(t testing.TB, state string, which func(api.Event) bool) (list []string) {
	t.Helper()
	Await(t, "the event "+state, func() bool {
		list = f.of(which)
		return len(list) > 0 && list[len(list)-1] == state
	})
	return list
}

// Who follows a hub that is started again and again hears of each change once and in its order, by numbers of which
// none is left out.
func TestEventsOverRestartsOfTheHub(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	f := m.followEvents(t)
	var tasks []string
	const restarts = 20
	for range restarts {
		for range 3 {
			tasks = append(tasks, m.Noop(t, "attic"))
		}
		m.Stop(t, "hub")
		m.Start(t, "hub")
	}
	for _, task := range tasks {
		m.Wait(t, task)
		seen := f.awaitLast(t, "completed", func(e api.Event) bool { return e.Task == task })
		require.Equal(t, "queued", seen[0])
	}
	started := f.of(func(e api.Event) bool { return e.Kind == api.EventKindStarted })
	f.mu.Lock()
	defer f.mu.Unlock()
	require.NoError(t, f.wrong)
	require.Greater(t, f.cuts, restarts/2, "two restarts may be one cut")
	require.GreaterOrEqual(t, len(started), restarts)
}

// What changes of a spoke is told with the name that it has here.
func TestEventsOfASpoke(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	m.AwaitLink(t, "attic")
	f := m.followEvents(t)
	link := func(e api.Event) bool { return e.Kind == api.EventKindLink && e.Spoke == "attic" }
	state := func(e api.Event) bool { return e.Kind == api.EventKindConnection && e.Spoke == "attic" }

	m.Turn(t, "attic", "suspend")

	f.awaitLast(t, "suspended", state)
	f.awaitLast(t, "down", link)
	m.Turn(t, "attic", "resume")
	require.Equal(t, []string{"suspended", "active"}, f.awaitLast(t, "active", state))
	links := f.awaitLast(t, "up", link)
	require.Equal(t, []string{"down", "up"}, links[len(links)-2:], "the link that was there first may be noted only now")
	task := m.Spawn(t, "attic", "/bin/sh", "-c", "exit 3")
	m.Wait(t, task)
	seen := f.awaitLast(t, "failed", func(e api.Event) bool { return e.Task == task && e.Spoke == "attic" && e.ShortID != "" })
	require.Equal(t, "queued", seen[0])
	require.NoError(t, f.wrong)
	require.Error(t, m.Hub.Ask(t, "GET", "/api/v1/events?since=999999", nil, nil))
}

// An agent that says how far it is with each word is told so now and then, without what its spoke keeps secret; that it overruns its
// estimate is told once.
func TestProgressAndOverrunsAreEvents(t *testing.T) {
	t.Parallel()
	m := Plan{Overrun: 500 * time.Millisecond, Policy: Loose("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\nenvironment: [\"*\"]\n")}.Start(t, "attic")
	m.AwaitLink(t, "attic")
	f := m.followEvents(t)
	r := hub.SpawnRequest{Spoke: "attic", Values: commands.Values{commands.NewSecret("abcdefghijklmnop12345")},
		Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sleep", "600"}, Env: []commands.EnvVar{{Name: "PIN", As: commands.EnvSecret}}, EstimateMS: 100}}
	task := m.Order(t, r)
	m.Await(t, task, commands.Running)
	dir := filepath.Join(m.Spokes["attic"].Dir, "agents", task, "1", "door")
	c := &door.Client{Socket: filepath.Join(dir, door.Socket), TokenFile: filepath.Join(dir, door.Token), Patience: 20 * time.Second}
	told := func(kind api.EventKind) (list []api.Event) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, e := range f.events {
			if e.Task == task && e.Kind == kind {
				list = append(list, e)
			}
		}
		return list
	}

	for i := int64(0); len(told(api.EventKindProgress)) == 0 || len(told(api.EventKindOverrun)) == 0; i++ {
		require.NoError(t, c.Do(t.Context(), "POST", "/v1/progress", commands.Progress{Current: &i, Step: "sends abcdefghijklmnop12345"}, nil))
		time.Sleep(100 * time.Millisecond)
	}

	require.Len(t, told(api.EventKindOverrun), 1)
	e := told(api.EventKindProgress)[0]
	require.Equal(t, "attic", e.Spoke)
	require.Equal(t, 1, e.Attempt)
	require.Contains(t, e.Progress.Step, "[redacted]")
	require.NotContains(t, e.Progress.Step, "abcdefghijklmnop12345")
	require.NoError(t, f.wrong)
}
