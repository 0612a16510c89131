package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// openOnHub says of an agent that has not ended what it waits for, or that it
// runs, as far as its hub knows.
func (a *app) openOnHub(ctx context.Context, c *control.Client, v hub.AgentView) (string, error) {
	conn, err := connectionNamed(ctx, c, v.Conn)
	if err != nil {
		return "", err
	}
	return a.standsOnHub(v, conn), nil
}

// whyRunning says how an agent stands that has started, as far as its hub knows,
// and what to do where that is old. To revoke is final and ends the agent, so it
// is named only after a silence longer than the lease that the spoke has told, or the
// default where it has told none.
func (a *app) whyRunning(v hub.AgentView, conn connectionView) string {
	said := clauseOf(v)
	heard := conn.State == store.Active && conn.Linked && (conn.Liveness == "alive" || conn.Liveness == "late")
	var silent time.Duration
	if !heard || conn.Liveness == "late" {
		said += ", as " + v.Spoke + " last said"
		if conn.LastSeen != nil {
			silent = time.Since(*conn.LastSeen)
			said += " " + longAgo(*conn.LastSeen)
		}
	}
	if heard {
		if conn.Full {
			said += "; " + fullWith(v.Spoke, conn)
		} else if conn.Differs != "" {
			said += fmt.Sprintf("; this is what is known here, and nothing is relayed to or from %s: %s", v.Spoke, conn.Differs)
		} else if conn.Says.State == string(store.Suspended) {
			said += fmt.Sprintf("; %s has suspended the connection and starts nothing more: %s", v.Spoke, conn.Says.Reason)
		}
		return said
	}
	link := "the link is down"
	if conn.Linked {
		link = "the link is up and nothing is heard over it"
	}
	switch {
	case conn.State == store.Suspended:
		return fmt.Sprintf("%s; the connection is %s; the agent may go on, and what became of it is told after: %s",
			said, suspension(conn), a.line("connections", "resume", v.Spoke))
	case conn.State != store.Active:
		return fmt.Sprintf("%s; the connection is %s", said, conn.State)
	case conn.Liveness == "dead" && silent > cmp.Or(time.Duration(conn.LeaseMS)*time.Millisecond, spoke.DefaultLease):
		return fmt.Sprintf("%s; %s; when the host is back, it says what became of the agent; only if the host is gone for good: %s",
			said, link, a.line("connections", "revoke", v.Spoke, "--reason", "WHY"))
	}
	return fmt.Sprintf("%s; %s; it may come back by itself, and the agent may go on meanwhile", said, link)
}

// fullWith says that a hub does not take in what a spoke tells of its agents, and what helps.
func fullWith(spoke string, conn connectionView) string {
	return fmt.Sprintf("no more messages of %s are kept here%s, so it may have run and ended; to make room, %s", spoke, sinceOf(conn.FullSince), inboxNext)
}

// whyQueued says what an agent waits for that has not started, as far as its hub
// knows, and how old that is where its spoke is not heard. Where the link is down the reason itself says it.
func (a *app) whyQueued(v hub.AgentView, conn connectionView) string {
	said := a.waitsFor(v, conn)
	silent := conn.Linked && conn.Liveness != "alive" || conn.State != store.Active && v.AcceptedAt != nil
	if silent && conn.LastSeen != nil {
		said += fmt.Sprintf("; %s was %s", v.Spoke, heardOf(conn))
	}
	return said
}

// waitsFor says what an agent waits for that has not started. A spoke runs what it has accepted, whoever is away.
func (a *app) waitsFor(v hub.AgentView, conn connectionView) string {
	started := fmt.Sprintf("%s has accepted it and may have started it; what became of it is told when", v.Spoke)
	switch {
	case conn.State != store.Active && v.AcceptedAt != nil:
		return fmt.Sprintf("%s the connection, which is %s, is resumed", started, conn.State)
	case conn.State != store.Active:
		return fmt.Sprintf("it waits for the connection with %s, which is %s", v.Spoke, conn.State)
	case conn.Full:
		return "it waits, as far as is known here; " + fullWith(v.Spoke, conn)
	case conn.Differs != "" && conn.Linked:
		return fmt.Sprintf("it waits, as far as is known here; nothing is relayed to or from %s: %s", v.Spoke, conn.Differs)
	case conn.Says.State == string(store.Suspended):
		return fmt.Sprintf("it waits until %s resumes the connection, which it has suspended: %s", v.Spoke, conn.Says.Reason)
	case !conn.Linked && v.AcceptedAt != nil:
		return fmt.Sprintf("%s the link, which is down (%s), is up", started, heardOf(conn))
	case !conn.Linked:
		return fmt.Sprintf("it waits for the link with %s, which is down (%s)", v.Spoke, heardOf(conn))
	case conn.Says.Refuses != nil:
		return fmt.Sprintf("it waits for %s, which has ended the key that this hub signs with; after a restore from an older backup: %s",
			v.Spoke, a.mendRefused(conn))
	case v.AcceptedAt == nil:
		return fmt.Sprintf("it waits for %s to accept it", v.Spoke)
	case conn.Frozen != nil:
		return fmt.Sprintf("what is ordered on %s is frozen here by %s: %s; see: %s", v.Spoke, conn.Frozen.By, inLine(conn.Frozen.Reason), a.line("freeze", "list"))
	case conn.Stopping:
		return fmt.Sprintf("%s is stopping, and starts it when it runs again", v.Spoke)
	case conn.StartsNone != "":
		return fmt.Sprintf("it waits for %s, which starts nothing now: %s; it goes on by itself when its host has mended that", v.Spoke, inLine(conn.StartsNone))
	case v.Attempt > 0:
		return waitsForNext(v)
	case conn.Running >= conn.Slots:
		said := fmt.Sprintf("it waits for a free slot on %s, which has %d", v.Spoke, conn.Slots)
		if v.Before != nil {
			said += "; " + backlog.InLine(*v.Before, "this hub")
		}
		return said
	}
	// As it is typed there: the options of this call are about this hub.
	return fmt.Sprintf("it waits for %s to start it, which had %d of its %d slots taken when it last said so; where that stays, every reason is seen on its host: spawnmesh why %s", v.Spoke, conn.Running, conn.Slots, commands.ShortID(v.Task))
}

// whyHere says how an agent stands that runs, or ran, on this host, in the words of
// its spoke; "" where it waits, which has reasons, and for more than its next try.
func whyHere(v agentView, w backlog.Why, runs bool) string {
	until := w.Task.LeaseUntil
	switch {
	case v.State.Terminal() && v.ConnState.Ended():
		return fmt.Sprintf("%s; the connection with %s is %s", clauseOf(v.AgentView), v.Hub, v.ConnState)
	case v.State.Terminal():
		return clauseOf(v.AgentView)
	case v.State == commands.Queued && v.Attempt > 0 && len(w.Reasons) == 1 && w.Reasons[0].Stage == "not_before":
		return waitsForNext(v.AgentView)
	case until == nil:
		return ""
	case runs:
		return fmt.Sprintf("%s here, as attempt %d", clauseOf(v.AgentView), v.Attempt)
	case time.Now().Before(*until):
		return fmt.Sprintf("it was running here as attempt %d, and no spoke runs: one that is started before %s goes on with it", v.Attempt, clock(until))
	}
	return fmt.Sprintf("it was running here as attempt %d until no spoke ran any more; its lease ended at %s, and its shim has ended it then", v.Attempt, clock(until))
}

// statusOnHost says what else the host of an open agent may want to know.
func (a *app) statusOnHost(ctx context.Context, v agentView) error {
	runs, err := a.hostRuns(ctx)
	switch {
	case err != nil:
		return err
	case v.State == commands.Queued:
		fmt.Fprintf(a.err, "\nwhy it waits: %s\n", a.line("why", commands.ShortID(v.Task)))
	case !runs:
		fmt.Fprintf(a.err, "\nno spoke runs here: this is what the last one wrote; start it with: %s\n", a.line("spoke", "run"))
	}
	return nil
}
