package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// A peerList is a command that lists connections: those that live and, with all, those
// that have ended.
type peerList struct {
	command   string // that lists the ended ones with --all
	authority store.Authority
	print     func([]connectionView) error
	all       bool
}

// peerListCommand is a command that lists, and with -w goes on.
func (a *app) peerListCommand(l *peerList) *cobra.Command {
	watching := false
	c := &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if watching {
				return a.watchPeers(c.Context(), l)
			}
			return a.listPeers(c.Context(), l)
		},
	}
	c.Flags().BoolVarP(&watching, "watch", "w", false, "show it again when something changes")
	c.Flags().BoolVar(&l.all, "all", false, "also those that have ended")
	return c
}

func (a *app) listPeers(ctx context.Context, l *peerList) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	views, err := l.there(ctx, c)
	if err != nil {
		return err
	}
	slices.SortStableFunc(views, func(v, w connectionView) int { return endedOf(v) - endedOf(w) })
	living := slices.IndexFunc(views, func(v connectionView) bool { return v.State.Ended() })
	if l.all || living < 0 {
		return l.print(views)
	}
	if err := l.print(views[:living]); err != nil || !a.forPeople() {
		return err
	}
	fmt.Fprintf(a.out, "%d ended; see: %s\n", len(views)-living, a.line(append(strings.Fields(l.command), "--all")...))
	return nil
}

// watchPeers shows the list until it is interrupted.
func (a *app) watchPeers(ctx context.Context, l *peerList) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return watchList(ctx, a, c, watched[connectionView]{
		list: func(ctx context.Context) ([]connectionView, error) {
			views, err := l.there(ctx, c)
			return slices.DeleteFunc(views, func(v connectionView) bool { return !l.all && v.State.Ended() }), err
		},
		print: l.print,
		key:   func(v connectionView) string { return v.ID },
		about: func(e api.Event) string {
			if e.Kind == api.EventKindTask {
				return ""
			}
			return e.Connection
		},
	})
}

// there are the connections that belong in the list.
func (l *peerList) there(ctx context.Context, c *control.Client) ([]connectionView, error) {
	views, err := listed(ctx, c)
	return slices.DeleteFunc(views, func(v connectionView) bool { return l.authority != "" && v.Authority != l.authority }), err
}

// listed asks a running instance for its connections.
func listed(ctx context.Context, c *control.Client) ([]connectionView, error) {
	list, err := control.Read[control.Items[connectionView]](c.API().ListConnections(ctx))
	return list.Items, err
}

func endedOf(v connectionView) int {
	if v.State.Ended() {
		return 1
	}
	return 0
}
