package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

// A connectionView is a connection as a hub sees its spoke or, with Grant, as a
// spoke sees a hub.
type connectionView struct {
	hub.SpokeView
	Grant     *store.GrantTerms `json:"grant,omitempty"`      // what the hub may ask for
	LinkError string            `json:"link_error,omitempty"` // why the link to the hub is down
	Untold    bool              `json:"untold,omitempty"`     // the hub may not know that the connection has ended
	// Reasons are what keeps a spoke from taking work, or orders of a hub from being done here.
	Reasons []commands.WhyReason `json:"reasons"`
}

func (a *app) connectionsCommand() *cobra.Command {
	c := &cobra.Command{Use: "connections", SuggestFor: []string{"hubs", "peers"}, Short: "See and change who is connected", Aliases: []string{"conn"}}
	list := a.peerListCommand(&peerList{command: "connections list", print: a.printConnections})
	list.Use, list.Short = "list", "List connections"
	show := &cobra.Command{
		Use: "show NAME", Short: "Show one connection", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.showConnection(c.Context(), args[0]) },
	}
	c.AddCommand(list, show,
		a.connectionVerb("suspend"), a.connectionVerb("resume"), a.connectionVerb("revoke"), a.connectionGrantCommand(), a.connectionResyncCommand())
	return c
}

func (a *app) showConnection(ctx context.Context, name string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	v, err := connectionNamed(ctx, c, name)
	if err != nil {
		return err
	}
	return a.printConnection(v)
}

// connectionNamed asks a running instance for one of its connections.
func connectionNamed(ctx context.Context, c *control.Client, name string) (connectionView, error) {
	return control.Read[connectionView](c.API().GetConnection(ctx, name))
}

// connectionWords say what a change of a connection does, and not.
var connectionWords = map[string]struct{ short, long, example string }{
	"suspend": {"Stop ordering, or obeying, until the connection is resumed", `Stop a connection until it is resumed. Agents that run go on, on both sides.

At a hub the link is cut. New orders and kills wait for resume. What the spoke has
accepted it starts and runs all the same, and its end is told after resume; to stop
that, kill it first.

At a spoke the link stays. Nothing of that hub is started, and no order is taken but
kills and questions; what is queued waits for resume.`, "--reason 'holiday'"},
	"resume": {"Let a suspended connection work again", `Let a suspended connection work again: what waits on both sides goes on its way.
Who has suspended it resumes it; where both sides have, both.`, ""},
	"revoke": {"End a connection for good, with its agents", `End a connection for good; it never comes back. The link is cut. What is queued is
dropped on both sides. Running agents are killed, or finish, as on_revoke in the
policy of the spoke says (default: kill), and their results do not reach the hub.

The other side is told when it is linked, or when it dials again.`, "--reason 'the host was sold'"},
}

func (a *app) connectionVerb(verb string) *cobra.Command {
	var reason string
	var yes bool
	words := connectionWords[verb]
	c := &cobra.Command{
		Use: verb + " NAME", Short: words.short, Long: words.long, Args: cobra.ExactArgs(1),
		Example: strings.TrimRight("  spawnmesh connections "+verb+" attic "+words.example, " "),
		RunE: func(c *cobra.Command, args []string) error {
			if reason == "" && verb != "resume" {
				return misuse("to %s a connection needs a reason", verb).Hinting("add --reason \"why\"; it is recorded")
			}
			if verb == "revoke" && !yes {
				no := misuse("%s was not revoked: a revoked connection never comes back", args[0]).Hinting("add --yes if you mean it")
				if err := a.meant(c.Context(), "a revoked connection never comes back; revoke "+args[0]+"?", no); err != nil {
					return err
				}
			}
			return a.changeConnection(c.Context(), args[0], verb, reason)
		},
	}
	required := " (required)"
	if verb == "resume" {
		required = ""
	}
	c.Flags().StringVar(&reason, "reason", "", "record `WHY`"+required)
	if verb == "revoke" {
		c.Flags().BoolVar(&yes, "yes", false, "do not ask whether it is meant")
	}
	return c
}

func (a *app) changeConnection(ctx context.Context, name, verb, reason string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	change := map[string]func(context.Context, api.ConnectionName, api.Reason, ...api.RequestEditorFn) (*http.Response, error){
		"suspend": c.API().SuspendConnection, "resume": c.API().ResumeConnection, "revoke": c.API().RevokeConnection}[verb]
	v, err := control.Read[federation.Changed](change(ctx, name, api.Reason{Reason: reason}))
	if err != nil {
		return err
	}
	a.did("%s is %s; see: %s", v.Name, v.State, a.line("connections", "show", v.Name))
	if rest := pending(verb, v); rest != "" {
		defer fmt.Fprintln(a.err, printable(rest))
	}
	if a.forPeople() {
		is := fmt.Sprintf("%s is %s", v.Name, v.State)
		if v.Already {
			is += already(v.By, v.Since, v.Reason)
		}
		fmt.Fprintln(a.out, is)
		return nil
	}
	return a.print(v, []any{v}, table{names: []string{v.Name}})
}

// pending says what a change of a connection still waits for; "" where it is nothing.
func pending(verb string, v federation.Changed) string {
	unlinked := v.Name + " is not linked and has not been told yet; it is told when "
	switch {
	case verb == "resume" && v.Says.State == string(store.Suspended):
		return fmt.Sprintf("%s has suspended the connection, too: %s; nothing goes over it until it is resumed there, with: spawnmesh connections resume %s", v.Name, v.Says.Reason, v.ID)
	case verb == "resume" || !v.Untold:
		return ""
	case v.Authority == store.Commands:
		return unlinked + "it dials this hub again"
	case v.State.Ended():
		return unlinked + "it can be reached: let this spoke run until then"
	}
	return unlinked + "the link is up again"
}

func (a *app) printConnection(v connectionView) error {
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Name}})
	}
	var list pairs
	list.add("name", v.Name)
	list.add("state", stateOf(v))
	if stateOf(v) == string(v.State) {
		list.add("since", v.Since.Local().Format(time.DateTime))
		list.add("by", v.By)
		list.add("why", v.Reason)
	} else { // the row is of this side
		list.add("suspended", strings.TrimPrefix(suspension(v), "suspended "))
		list.add("here", fmt.Sprintf("%s since %s by %s", v.State, v.Since.Local().Format(time.DateTime), v.By))
	}
	if !isSpoke(v) {
		list.add("authority", "this instance obeys "+v.Name)
	} else {
		list.add("authority", "this instance commands "+v.Name)
	}
	list.add("instance", string(v.Peer))
	list.add("connection", v.ID)
	list.add("epoch", strconv.FormatInt(v.Epoch, 10))
	if !v.State.Ended() {
		list.add("link", cmp.Or(unlinked(v), a.linkOf(v)))
	}
	for _, r := range faults(v) {
		if r.Text += span(r.Since, nil); r.Code != commands.CauseQueue { // each has a row
			list.add("trouble", a.withFix(r))
		}
	}
	if v.RefusesKeys != "" && !v.State.Ended() {
		list.add("keys", a.refusedKeys(v.RefusesKeys))
	}
	if v.Untold {
		list.add("told", "not yet: "+v.Name+" is told when it can be reached; let this spoke run until then")
	}
	if why := auditRefused(v); why != "" {
		list.add("audit", why)
	}
	list.add("remote", v.Remote)
	list.add("link key", v.LinkKey)
	for _, q := range v.Queues {
		list.add("queue "+q.Queue, cmp.Or(q.Problem, fmt.Sprintf("%d messages wait", q.Messages)))
	}
	if v.Grant != nil {
		list.add("grant", v.Grant.String())
		list.add("agents", fmt.Sprintf("%d here now", v.Running))
	}
	return a.align(append(list, a.heardOf(v)...), 0)
}

// heardOf is what a spoke said of itself in its last heartbeat.
func (a *app) heardOf(v connectionView) (list pairs) {
	if isSpoke(v) && !v.State.Ended() {
		list.add("seen", a.seenOf(v))
		if v.Liveness != hub.Alive && v.NextExpected != nil {
			list.add("heartbeat", "was due "+longAgo(*v.NextExpected))
		}
		told := ""
		if v.Liveness != hub.Alive && v.LastSeen != nil {
			told = ", as of its last heartbeat, " + longAgo(*v.LastSeen)
		}
		list.add("agents", fmt.Sprintf("%d running, %d queued, %d slots%s", v.Running, v.Queued, v.Slots, told))
	}
	list.add("capabilities", strings.Join(v.Capabilities, ", "))
	list.add("clock offset", v.ClockOffset)
	list.add("kill level", v.KillLevel)
	list.add("isolation", isolationOf(v))
	list.add("policy", v.Policy)
	list.add("version", v.Version)
	return list
}
