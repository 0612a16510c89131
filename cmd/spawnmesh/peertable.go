package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

// peerColumns are what tables show of connections, by their headings.
var peerColumns = map[string]func(a *app, v connectionView) string{
	"NAME":    func(_ *app, v connectionView) string { return v.Name },
	"IS":      func(_ *app, v connectionView) string { return roleOf(v) },
	"STATE":   func(_ *app, v connectionView) string { return stateOf(v) },
	"VERDICT": func(a *app, v connectionView) string { return a.verdictOn(v) },
	"LINK":    (*app).linkOf,
	"SEEN":    (*app).seenOf,
	"SLOTS":   func(_ *app, v connectionView) string { return counted(v.Slots, isSpoke(v) && !v.State.Ended()) },
	"RUNNING": func(_ *app, v connectionView) string {
		return counted(v.Running, !isSpoke(v) || v.Liveness == hub.Alive)
	},
	"QUEUED":       func(_ *app, v connectionView) string { return counted(v.Queued, isSpoke(v) && v.Liveness == hub.Alive) },
	"UNCONFIRMED":  func(_ *app, v connectionView) string { return counted(v.Unconfirmed, isSpoke(v)) },
	"CAPABILITIES": func(_ *app, v connectionView) string { return strings.Join(v.Capabilities, ",") },
	"POLICY":       func(_ *app, v connectionView) string { return v.Policy },
	"ISOLATION":    func(_ *app, v connectionView) string { return isolationOf(v) },
	"KILL LEVEL":   func(_ *app, v connectionView) string { return v.KillLevel },
	"VERSION":      func(_ *app, v connectionView) string { return v.Version },
	"CLOCK":        func(_ *app, v connectionView) string { return clockOf(v) },
	"ID":           func(_ *app, v connectionView) string { return v.ID },
	"INSTANCE":     func(_ *app, v connectionView) string { return string(v.Peer) },
	"WEIGHT": func(_ *app, v connectionView) string {
		if v.Grant == nil {
			return "-"
		}
		return strconv.Itoa(v.Grant.Weight)
	},
}

// fillPeers gives t a row for each connection.
func (a *app) fillPeers(t table, views []connectionView) table {
	for _, v := range views {
		var row []string
		for _, heading := range slices.Concat(t.head, t.wide) {
			row = append(row, peerColumns[heading](a, v))
		}
		t.rows, t.names = append(t.rows, row), append(t.names, v.Name)
	}
	return t
}

func isSpoke(v connectionView) bool { return v.Authority != store.Obeys }

func roleOf(v connectionView) string {
	if isSpoke(v) {
		return "spoke"
	}
	return "hub"
}

// counted is a number, or - where nobody knows it: one of a heartbeat that is old.
func counted(n int, known bool) string {
	if !known {
		return "-"
	}
	return strconv.Itoa(n)
}

// both reports whether there are hubs and spokes among the peers.
func both(views []connectionView) bool {
	return slices.ContainsFunc(views, func(v connectionView) bool { return v.Authority != views[0].Authority })
}

// isolationOf is what a spoke says of its agents. One of before, or of another maker, may say
// nothing.
func isolationOf(v connectionView) string {
	if v.Isolation == "" && isSpoke(v) && v.LastSeen != nil && !v.State.Ended() {
		return "not said"
	}
	return v.Isolation
}

// clockOf is how far the clock of a spoke is from this one's.
func clockOf(v connectionView) string {
	switch {
	case v.ClockOffset != "":
		return v.ClockOffset
	case isSpoke(v) && v.LastSeen != nil:
		return "within 2s"
	}
	return "-"
}

// stateOf is the stricter of the two sides' states: ours, or what the peer says
// of itself.
func stateOf(v connectionView) string {
	if v.State != store.Active || v.Says.State == "" || v.Says.State == string(store.Active) {
		return string(v.State)
	}
	return v.Says.State + " by " + v.Name
}

// suspension says who has suspended a connection and why; "" where nobody has.
func suspension(v connectionView) string {
	switch {
	case v.State == store.Suspended:
		return fmt.Sprintf("%s by %s: %s", v.State, v.By, commands.OneLine(v.Reason))
	case v.State == store.Active && v.Says.State == string(store.Suspended):
		return fmt.Sprintf("%s by %s: %s", v.Says.State, v.Name, commands.OneLine(v.Says.Reason))
	}
	return ""
}

// unlinked says why the link to a hub is down; "" where it is not, or nobody wants it.
func unlinked(v connectionView) string {
	if v.Linked || v.State.Ended() || v.LinkError == "" {
		return ""
	}
	return "not linked: " + v.LinkError
}

func (a *app) linkOf(v connectionView) string {
	switch {
	case v.State.Ended():
		return "-"
	case v.Linked && v.LinkedSince != nil:
		return "up " + a.since(*v.LinkedSince)
	case v.Linked:
		return "up"
	case v.DownSince != nil:
		return "down " + a.since(*v.DownSince)
	}
	return "down"
}

func (a *app) seenOf(v connectionView) string {
	switch {
	case v.State.Ended():
		return "ended " + a.since(v.Since)
	case !isSpoke(v):
		return "-"
	case v.LastSeen != nil:
		return string(v.Liveness) + " " + a.since(*v.LastSeen)
	}
	return string(v.Liveness)
}
