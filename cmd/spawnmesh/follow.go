package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// patience is how long a waiting command bears with a hub that is away: it may
// be starting again, and what is waited for goes on meanwhile.
const patience = time.Minute

// isAway reports whether a code says that an instance is away, and may be back in a moment.
func isAway(code commands.Code) bool {
	return code == commands.Unreachable || code == commands.StoreDown || code == commands.NotReady
}

// errWaited ends the wait for an agent that is to last no longer.
var errWaited = errors.New("the time to wait is over")

// A watch is a command that waits for an agent.
type watch struct {
	a     *app
	c     *control.Client
	id    string
	reads bool      // it only reads what is there: the agent may have ended
	known bool      // the hub answered about it before
	away  time.Time // since when the hub does not answer; zero when it does
}

// await asks until the agent has ended. An interrupt detaches: the agent goes on.
func (a *app) await(ctx context.Context, c *control.Client, id string) (hub.AgentView, error) {
	w := &watch{a: a, c: c, id: id, known: true}
	for {
		v, err := w.look(ctx, 30*time.Second)
		if err == nil && v.State.Terminal() {
			return v, nil
		}
		if err := w.bear(ctx, err); err != nil {
			return v, err
		}
	}
}

// look returns the agent once it has ended, or after limit as it is.
func (w *watch) look(ctx context.Context, limit time.Duration) (v hub.AgentView, err error) {
	v, err = control.Read[hub.AgentView](w.c.API().GetTask(ctx, w.id, &api.GetTaskParams{Wait: limit.String()}))
	w.known = w.known || err == nil
	return v, err
}

// bear returns nil when it makes sense to ask again after err, after a pause
// where the hub is away.
func (w *watch) bear(ctx context.Context, err error) error {
	code := commands.CodeOf(err)
	switch {
	case errors.Is(context.Cause(ctx), errWaited):
		return commands.Refuse(control.Interrupted, "this has waited for as long as it was told to; %s", w.meanwhile()).Hinting("see: %s status %s", w.a.self(), commands.ShortID(w.id))
	case ctx.Err() != nil:
		return commands.Refuse(control.Interrupted, "detached; %s", w.meanwhile()).Hinting("see: %s status %s", w.a.self(), commands.ShortID(w.id))
	case err == nil:
		w.away = time.Time{}
		return nil
	case !w.known || !isAway(code):
		return err
	case w.away.IsZero():
		w.away = time.Now()
		fmt.Fprintf(w.a.err, "the hub does not answer; %s, and this waits for %s\n", w.meanwhile(), commands.Lasting(patience))
	case time.Since(w.away) > patience:
		return commands.Refuse(code, "the hub did not answer for %s; %s", commands.Lasting(patience), w.meanwhile()).
			Hinting("when the hub is back: %s %s %s", w.a.self(), w.again(), commands.ShortID(w.id))
	}
	select {
	case <-ctx.Done():
	case <-time.After(200 * time.Millisecond):
	}
	return nil
}

// meanwhile says what is the case while the hub is away.
func (w *watch) meanwhile() string {
	if w.reads {
		return "the log of agent " + commands.ShortID(w.id) + " is not shown to its end"
	}
	return "agent " + commands.ShortID(w.id) + " goes on"
}

// again is the command that helps when the hub is back.
func (w *watch) again() string {
	if w.reads {
		return "logs"
	}
	return "status"
}

func (a *app) waitAgent(ctx context.Context, c *control.Client, id string) error {
	stop := a.telling(ctx, c, id, true)
	v, err := a.await(ctx, c, id)
	stop()
	if err != nil {
		return err
	}
	if err := a.printAgent(agentView{AgentView: v}, -1); err != nil {
		return err
	}
	return resultCode(v)
}

// followAgent shows the output as it comes, then says how the agent ended: to a
// program in one more line of JSON.
func (a *app) followAgent(ctx context.Context, c *control.Client, id string) error {
	stop := a.telling(ctx, c, id, false)
	v, err := a.followLogs(ctx, c, id, logFlags{last: -1})
	stop()
	if err != nil {
		return err
	}
	if a.wantsJSON() {
		if err := a.printLine(v); err != nil {
			return err
		}
		return resultCode(v)
	}
	fmt.Fprintf(a.err, "agent %s %s\n", commands.ShortID(id), v.InWords())
	return resultCode(v)
}
