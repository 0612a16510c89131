package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A connectionView is a connection as a hub sees its spoke or, with Grant, as a
// spoke sees a hub.
type connectionView struct {
	hub.SpokeView
	Grant     *store.GrantTerms `json:"grant,omitempty"`      // what the hub may ask for
	LinkError string            `json:"link_error,omitempty"` // why the link to the hub is down
	Untold    bool              `json:"untold,omitempty"`     // the hub may not know that the connection has ended
}

func (a *app) connectionsCommand() *cobra.Command {
	c := &cobra.Command{Use: "connections", SuggestFor: []string{"spokes", "hubs", "nodes", "peers"}, Short: "See and change who is connected", Aliases: []string{"conn"}}
	all, watching := false, false
	list := &cobra.Command{
		Use: "list", Short: "List connections", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if watching {
				return a.watchConnections(c.Context(), all)
			}
			return a.listConnections(c.Context(), all)
		},
	}
	list.Flags().BoolVarP(&watching, "watch", "w", false, "show it again when something changes")
	list.Flags().BoolVar(&all, "all", false, "also those that have ended")
	show := &cobra.Command{
		Use: "show NAME", Short: "Show one connection", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.showConnection(c.Context(), args[0]) },
	}
	c.AddCommand(list, show,
		a.connectionVerb("suspend"), a.connectionVerb("resume"), a.connectionVerb("revoke"), a.connectionGrantCommand(), a.connectionResyncCommand())
	return c
}

// listConnections prints those that live and then, with all, those that have ended.
func (a *app) listConnections(ctx context.Context, all bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	views, err := listed(ctx, c)
	if err != nil {
		return err
	}
	slices.SortStableFunc(views, func(v, w connectionView) int { return endedOf(v) - endedOf(w) })
	living := slices.IndexFunc(views, func(v connectionView) bool { return v.State.Ended() })
	if all || living < 0 {
		return a.printConnections(views)
	}
	if err := a.printConnections(views[:living]); err != nil || !a.forPeople() {
		return err
	}
	fmt.Fprintf(a.out, "%d ended; see: %s\n", len(views)-living, a.line("connections", "list", "--all"))
	return nil
}

// watchConnections shows a list of connections until it is interrupted.
func (a *app) watchConnections(ctx context.Context, all bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return watchList(ctx, a, c, watched[connectionView]{
		list: func(ctx context.Context) ([]connectionView, error) {
			views, err := listed(ctx, c)
			return slices.DeleteFunc(views, func(v connectionView) bool { return !all && v.State.Ended() }), err
		},
		print: a.printConnections,
		key:   func(v connectionView) string { return v.ID },
		about: func(e api.Event) string {
			if e.Kind == api.EventKindTask {
				return ""
			}
			return e.Connection
		},
	})
}

// listed asks a running instance for its connections.
func listed(ctx context.Context, c *control.Client) ([]connectionView, error) {
	var list control.Items[connectionView]
	err := c.Do(ctx, "GET", "/api/v1/connections", nil, &list)
	return list.Items, err
}

func endedOf(v connectionView) int {
	if v.State.Ended() {
		return 1
	}
	return 0
}

func (a *app) showConnection(ctx context.Context, name string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var v connectionView
	if err := c.Do(ctx, "GET", "/api/v1/connections/"+url.PathEscape(name), nil, &v); err != nil {
		return err
	}
	return a.printConnection(v)
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
			if verb == "revoke" && !yes && !a.confirm("a revoked connection never comes back; revoke "+args[0]+"?") {
				return misuse("%s was not revoked: a revoked connection never comes back", args[0]).Hinting("add --yes if you mean it")
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

// confirm asks a person; where none sits at the terminal the answer is no.
func (a *app) confirm(question string) bool {
	if !terminal(a.in) {
		return false
	}
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	}
	return false
}

func (a *app) changeConnection(ctx context.Context, name, verb, reason string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var v federation.Changed
	path := "/api/v1/connections/" + url.PathEscape(name) + "/" + verb
	if err := c.Do(ctx, "POST", path, map[string]string{"reason": reason}, &v); err != nil {
		return err
	}
	a.did("%s is %s; see: %s", v.Name, v.State, a.line("connections", "show", v.Name))
	if rest := pending(verb, v); rest != "" {
		defer fmt.Fprintln(a.err, printable(rest))
	}
	if a.forPeople() {
		fmt.Fprintf(a.out, "%s is %s\n", v.Name, v.State)
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

func (a *app) printConnections(views []connectionView) error {
	if err := printList(a, views, a.tableOf(views)); err != nil || !a.forPeople() {
		return err
	}
	for _, v := range views {
		if note := cmp.Or(suspension(v), unlinked(v)); note != "" {
			fmt.Fprintf(a.out, "%s: %s\n", printable(v.Name), printable(note))
		}
		if v.Stopping && v.Linked {
			fmt.Fprintf(a.out, "%s: is stopping, and starts nothing more\n", printable(v.Name))
		}
		if v.Isolation == commands.IsolationUnmet && v.Linked {
			fmt.Fprintf(a.out, "%s: starts no program: %s\n", printable(v.Name), unmet)
		}
		if v.StartsNone != "" && v.Linked {
			fmt.Fprintf(a.out, "%s: starts nothing now: %s\n", printable(v.Name), printable(v.StartsNone))
		}
		if v.Differs != "" && v.Linked {
			fmt.Fprintf(a.out, "%s: nothing is relayed: %s\n", printable(v.Name), printable(v.Differs))
		}
		if r := v.Says.Refuses; r != nil && !v.State.Ended() {
			fmt.Fprintf(a.out, "%s: refuses the key that this instance signs with (%s); run: %s\n", printable(v.Name), r.Code, a.mendRefused(v))
		}
		if r := v.Refuses; r != nil && !v.State.Ended() {
			fmt.Fprintf(a.out, "%s: %s\n", printable(v.Name), endedKey(r))
		}
		if v.RefusesKeys != "" && !v.State.Ended() {
			fmt.Fprintf(a.out, "%s: %s\n", printable(v.Name), a.refusedKeys(v.RefusesKeys))
		}
		for _, note := range overRate(v) {
			fmt.Fprintf(a.out, "%s: %s\n", printable(v.Name), note)
		}
		for _, q := range v.Queues {
			if q.Problem != "" {
				fmt.Fprintf(a.out, "%s: %s: %s\n", printable(v.Name), q.Queue, q.Problem)
			}
		}
	}
	return nil
}

// mendRefused is how a peer that refuses the key in use is told newer ones.
func (a *app) mendRefused(v connectionView) string {
	return a.line(federation.MendKey(v.Says.Refuses.Key, v.KeyRevoked)...)
}

// refusedKeys says what a peer has done with the newest keys, and how it is told newer ones.
func (a *app) refusedKeys(code signing.Code) string {
	return fmt.Sprintf("has refused the newest keys of this instance (%s), and still trusts those before; to tell it newer ones: %s", code, a.line("keys", "rotate"))
}

// endedKey says what a peer is to do that signs with a key which verifies nothing here.
func endedKey(r *commands.EndedKey) string {
	return fmt.Sprintf("signs with the key %s, which has ended here (%s), so nothing of it is taken; its operator has to tell a newer one", r.Key, r.Code)
}

func (a *app) tableOf(views []connectionView) table {
	t := table{head: []string{"NAME", "STATE", "LINK", "SEEN", "SLOTS", "RUNNING", "QUEUED"}, wide: []string{"KILL LEVEL", "ISOLATION", "CAPABILITIES", "UNCONFIRMED", "ID", "INSTANCE", "WEIGHT"},
		empty: "no connections; a hub invites a spoke: " + a.line("invite", "--name", "NAME") + "; a spoke takes the token: " + a.line("spoke", "join", "--token-file", "FILE")}
	for _, v := range views {
		slots, running, queued, unconfirmed, weight := strconv.Itoa(v.Slots), strconv.Itoa(v.Running), strconv.Itoa(v.Queued), strconv.Itoa(v.Unconfirmed), "-"
		switch {
		case v.Authority == store.Obeys: // a hub does not run agents for us
			slots, queued, unconfirmed = "-", "-", "-"
		case v.State.Ended():
			slots, running, queued = "-", "-", "-"
		case v.Liveness != "alive": // nobody knows: they are those of its last heartbeat
			running, queued = "-", "-"
		}
		if v.Grant != nil {
			weight = strconv.Itoa(v.Grant.Weight)
		}
		t.rows = append(t.rows, []string{v.Name, stateOf(v), linkOf(v), seenOf(v), slots, running, queued,
			v.KillLevel, isolationOf(v), strings.Join(v.Capabilities, ","), unconfirmed, v.ID, string(v.Peer), weight})
		t.names = append(t.names, v.Name)
	}
	if both(views) {
		t.head = slices.Insert(t.head, 1, "IS")
		for i, v := range views {
			t.rows[i] = slices.Insert(t.rows[i], 1, map[store.Authority]string{store.Obeys: "hub", store.Commands: "spoke"}[v.Authority])
		}
	}
	return t
}

// unmet is what is wrong with a spoke that says [commands.IsolationUnmet].
const unmet = "it cannot confine agents as its policy demands; on its host, spawnmesh doctor says why"

// isolationOf is what a spoke says of its agents. One of before, or of another maker, may say
// nothing.
func isolationOf(v connectionView) string {
	if v.Isolation == "" && v.Authority == store.Commands && v.LastSeen != nil && !v.State.Ended() {
		return "not said"
	}
	return v.Isolation
}

// both reports whether there are hubs and spokes among the peers.
func both(views []connectionView) bool {
	return slices.ContainsFunc(views, func(v connectionView) bool { return v.Authority != views[0].Authority })
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
		return fmt.Sprintf("%s by %s: %s", v.State, v.By, v.Reason)
	case v.State == store.Active && v.Says.State == string(store.Suspended):
		return fmt.Sprintf("%s by %s: %s", v.Says.State, v.Name, v.Says.Reason)
	}
	return ""
}

// overRate says which side sends more than the other takes, while they are linked.
func overRate(v connectionView) (notes []string) {
	if v.Linked && v.Says.Limited {
		notes = append(notes, "takes less than this instance sends; what is above its rate waits here")
	}
	if v.Linked && v.Limited {
		notes = append(notes, "sends more than this instance takes; what is above the rate waits there")
	}
	if v.Linked && v.Says.Full {
		notes = append(notes, "keeps no more messages of this instance until there is room there; they wait here")
	}
	if v.Full {
		notes = append(notes, "no more of its messages are kept here"+sinceOf(v.FullSince)+"; they wait there; to make room, "+inboxNext)
	}
	return notes
}

// inboxNext is what makes room for messages of peers.
const inboxNext = "start this instance with a larger --inbox-per-peer or --inbox-total, or give up the signed bytes of old messages: spawnmesh retention envelopes 7d"

// sinceOf is " since" a time; "" for none.
func sinceOf(at *time.Time) string {
	if at == nil {
		return ""
	}
	return " since " + at.Local().Format(time.DateTime)
}

// unlinked says why the link to a hub is down; "" where it is not, or nobody wants it.
func unlinked(v connectionView) string {
	if v.Linked || v.State.Ended() || v.LinkError == "" {
		return ""
	}
	return "not linked: " + v.LinkError
}

func linkOf(v connectionView) string {
	switch {
	case v.State.Ended():
		return "-"
	case v.Linked && v.LinkedSince != nil:
		return "up " + ago(*v.LinkedSince)
	case v.Linked:
		return "up"
	}
	return "down"
}

func seenOf(v connectionView) string {
	switch {
	case v.State.Ended():
		return "ended " + ago(v.Since)
	case v.Authority == store.Obeys:
		return "-"
	case v.LastSeen != nil:
		return v.Liveness + " " + ago(*v.LastSeen)
	}
	return v.Liveness
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
	if v.Authority == store.Obeys {
		list.add("authority", "this instance obeys "+v.Name)
	} else {
		list.add("authority", "this instance commands "+v.Name)
	}
	list.add("instance", string(v.Peer))
	list.add("connection", v.ID)
	list.add("epoch", strconv.FormatInt(v.Epoch, 10))
	if !v.State.Ended() {
		list.add("link", cmp.Or(unlinked(v), linkOf(v)))
	}
	if r := v.Says.Refuses; r != nil {
		list.add("refuses", fmt.Sprintf("the key %s that this instance signs with (%s); run: %s", r.Key, r.Code, a.mendRefused(v)))
	}
	if v.Refuses != nil && !v.State.Ended() {
		list.add("refused", endedKey(v.Refuses))
	}
	if v.RefusesKeys != "" && !v.State.Ended() {
		list.add("keys", a.refusedKeys(v.RefusesKeys))
	}
	if v.Untold {
		list.add("told", "not yet: "+v.Name+" is told when it can be reached; let this spoke run until then")
	}
	if !v.State.Ended() {
		list.add("differs", v.Differs)
	}
	list.add("rate", strings.Join(overRate(v), "; "))
	list.add("remote", v.Remote)
	list.add("link key", v.LinkKey)
	for _, q := range v.Queues {
		list.add("queue "+q.Queue, cmp.Or(q.Problem, fmt.Sprintf("%d messages wait", q.Messages)))
	}
	if v.Authority != store.Obeys && !v.State.Ended() {
		list.add("seen", seenOf(v))
		told := ""
		if v.Liveness != "alive" && v.LastSeen != nil {
			told = ", as of its last heartbeat, " + ago(*v.LastSeen) + " ago"
		}
		list.add("agents", fmt.Sprintf("%d running, %d queued, %d slots%s", v.Running, v.Queued, v.Slots, told))
	}
	if v.Grant != nil {
		list.add("grant", v.Grant.String())
		list.add("agents", fmt.Sprintf("%d here now", v.Running))
	}
	list.add("capabilities", strings.Join(v.Capabilities, ", "))
	list.add("clock offset", v.ClockOffset)
	list.add("kill level", v.KillLevel)
	if v.Isolation == commands.IsolationUnmet {
		list.add("isolation", "no program is started: "+unmet)
	} else {
		list.add("isolation", isolationOf(v))
	}
	list.add("version", v.Version)
	return a.align(list, 0)
}
