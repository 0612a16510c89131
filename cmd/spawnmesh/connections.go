package main

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) inviteCommand() *cobra.Command {
	var name string
	ttl := days(hub.DefaultInvite)
	c := &cobra.Command{
		Use: "invite --name NAME", Short: "Make a join token for one spoke", Args: cobra.NoArgs,
		Long: `Make a join token for one spoke: one line on standard output, for one use.

Carry it to the other host in a way that nobody else sees; it is spent when the
spoke has joined. Its secret is never sent over the network.`,
		Example: "  spawnmesh invite --name attic > token",
		RunE: func(c *cobra.Command, _ []string) error {
			if name == "" {
				return misuse(errors.New("an invitation needs --name NAME, the spoke's name on this hub"))
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			var v hub.Invitation
			req := map[string]any{"name": name, "ttl_ms": time.Duration(ttl).Milliseconds()}
			if err := client.Do(c.Context(), "POST", "/v1/invites", req, &v); err != nil {
				return err
			}
			if a.output == "json" || a.output == "ndjson" {
				return a.printJSON(v)
			}
			fmt.Fprintln(a.out, v.Token)
			fmt.Fprintf(a.err, "for %s, one use, until %s; this hub's fingerprint is %s\n", v.Name, v.Expires.Local().Format(time.TimeOnly), v.Fingerprint)
			return nil
		},
	}
	c.Flags().StringVar(&name, "name", "", "the spoke's name on this hub (required)")
	c.Flags().Var(&ttl, "ttl", "how long the token can be used, at most 24h")
	return c
}

func (a *app) connectionsCommand() *cobra.Command {
	c := &cobra.Command{Use: "connections", Short: "See and change who is connected", Aliases: []string{"conn"}}
	list := &cobra.Command{
		Use: "list", Short: "List connections", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var views []hub.SpokeView
			client, err := a.client()
			if err == nil {
				err = client.Do(c.Context(), "GET", "/v1/connections", nil, &views)
			}
			if err != nil {
				return err
			}
			return a.printConnections(views)
		},
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "Show one connection", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var v hub.SpokeView
			client, err := a.client()
			if err == nil {
				err = client.Do(c.Context(), "GET", "/v1/connections/"+url.PathEscape(args[0]), nil, &v)
			}
			if err != nil {
				return err
			}
			return a.printConnection(v)
		},
	}
	c.AddCommand(list, show,
		a.connectionVerb("suspend", "Stop a connection until it is resumed; running agents go on"),
		a.connectionVerb("resume", "Let a suspended connection work again"),
		a.connectionVerb("revoke", "End a connection for good"))
	return c
}

func (a *app) connectionVerb(verb, short string) *cobra.Command {
	var reason string
	var yes bool
	c := &cobra.Command{
		Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if reason == "" && verb != "resume" {
				return misuse(fmt.Errorf("%s needs --reason \"why\"; it is recorded", verb))
			}
			if verb == "revoke" && !yes && a.interactive() {
				return misuse(errors.New("a revoked connection never comes back; add --yes if you mean it"))
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			var v store.Connection
			path := "/v1/connections/" + url.PathEscape(args[0]) + "/" + verb
			if err := client.Do(c.Context(), "POST", path, map[string]string{"reason": reason}, &v); err != nil {
				return err
			}
			if a.output == "table" || a.output == "wide" {
				fmt.Fprintf(a.out, "%s is %s\n", v.Name, v.State)
				return nil
			}
			return a.print(v, []any{v}, table{names: []string{v.Name}})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why; it is recorded")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func (a *app) printConnections(views []hub.SpokeView) error {
	t := table{head: []string{"NAME", "STATE", "LINK", "SEEN", "SLOTS", "RUNNING", "QUEUED"}, wide: []string{"KILL LEVEL", "CAPABILITIES", "UNCONFIRMED", "ID", "INSTANCE"},
		empty: "no connections yet; invite a spoke: spawnmesh invite --name NAME"}
	for _, v := range views {
		link := "down"
		if v.Linked {
			link = "up " + ago(*v.LinkedSince)
		}
		seen := v.Liveness
		if v.LastSeen != nil {
			seen = v.Liveness + " " + ago(*v.LastSeen)
		}
		if v.Authority == store.Obeys {
			link, seen = "-", "-"
		}
		t.rows = append(t.rows, []string{v.Name, string(v.State), link, seen, strconv.Itoa(v.Slots), strconv.Itoa(v.Running), strconv.Itoa(v.Queued),
			v.KillLevel, strings.Join(v.Capabilities, ","), strconv.Itoa(v.Unconfirmed), v.ID, string(v.Peer)})
		t.names = append(t.names, v.Name)
	}
	return a.print(views, anys(views), t)
}

func (a *app) printConnection(v hub.SpokeView) error {
	if a.output != "table" && a.output != "wide" {
		return a.print(v, []any{v}, table{names: []string{v.Name}})
	}
	for _, l := range [][2]string{{"name", v.Name}, {"state", string(v.State)}, {"since", v.Since.Local().Format(time.DateTime)}, {"by", v.By}, {"why", v.Reason},
		{"instance", string(v.Peer)}, {"connection", v.ID}, {"epoch", strconv.FormatInt(v.Epoch, 10)}, {"link key", v.LinkKey}, {"remote", v.Remote},
		{"liveness", v.Liveness}, {"clock offset", v.ClockOffset}, {"kill level", v.KillLevel}, {"version", v.Version}} {
		if l[1] != "" {
			fmt.Fprintf(a.out, "%-14s%s\n", l[0], printable(l[1]))
		}
	}
	return nil
}

func (a *app) auditCommand() *cobra.Command {
	c := &cobra.Command{Use: "audit", Short: "Read what was decided"}
	var object string
	list := &cobra.Command{
		Use: "list", Short: "List the newest audit rows", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var rows []store.AuditRow
			if err := client.Do(c.Context(), "GET", "/v1/audit?object="+url.QueryEscape(object), nil, &rows); err != nil {
				return err
			}
			t := table{head: []string{"SEQ", "AT", "ACTOR", "ACTION", "OBJECT", "CODE", "WHY"}, empty: "no audit rows"}
			for _, r := range rows {
				t.rows = append(t.rows, []string{strconv.FormatInt(r.Seq, 10), r.At.Local().Format("15:04:05.000"), r.Actor, r.Action, r.Object, r.Code, r.Why})
				t.names = append(t.names, strconv.FormatInt(r.Seq, 10))
			}
			return a.print(rows, anys(rows), t)
		},
	}
	list.Flags().StringVar(&object, "object", "", "only rows about this agent or connection")
	c.AddCommand(list)
	return c
}
