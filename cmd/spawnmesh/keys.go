package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) keysCommand() *cobra.Command {
	c := &cobra.Command{Use: "keys", Short: "See and change the keys that messages are signed with"}
	list := &cobra.Command{
		Use: "list", Short: "List the keys of this instance and of its peers", Args: cobra.NoArgs,
		Long: `List the keys of this instance and of its peers. With -o wide: when a key was
replaced or revoked (ENDED), and until when messages that it signed are taken
(VERIFIES UNTIL). A peer counts the overlap from when it took the new key; for an old
key of this instance the time shown is that of a peer that took it at once.`,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			v, err := control.Answer(client.API().ListKeysWithResponse(c.Context()))
			if err != nil {
				return err
			}
			return a.printKeys(v)
		},
	}
	c.AddCommand(list, a.keysRotateCommand(), a.keysRevokeCommand())
	return c
}

func (a *app) keysRotateCommand() *cobra.Command {
	overlap := days(store.MaxOverlap)
	c := &cobra.Command{
		Use: "rotate", Short: "Sign with a new key from now on", Args: cobra.NoArgs,
		Long: `Make a new signing key and tell every peer about it. Towards a peer the new key
signs as soon as the peer has confirmed it; until then the old one does. The old
key still verifies at a peer for a while, for messages that are on their way. No
message is lost or refused, and nobody has to be linked at the moment.`,
		Example: "  spawnmesh keys rotate\n  spawnmesh keys rotate --overlap 7d",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.changeKey(c.Context(), func(ctx context.Context, client *api.ClientWithResponses) (api.Keys, error) {
				return control.Answer(client.RotateKeyWithResponse(ctx, api.KeyRotation{OverlapMS: time.Duration(overlap).Milliseconds()}))
			})
		},
	}
	c.Flags().Var(&overlap, "overlap", "how long the old key still verifies at a peer that knows the new one")
	return c
}

func (a *app) keysRevokeCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "revoke KEY|current", Short: "End a signing key that others may have", Args: cobra.ExactArgs(1),
		Long: `End a signing key that others may have, and make a new one. A peer refuses
everything that the revoked key has signed as soon as it knows of it; what it had
stored before stays. Messages that it has not stored are signed again with the new
key. KEY is the id of a key, six or more characters of it, or "current"; agents and
connections go on.`,
		Example: "  spawnmesh keys revoke current --reason 'the disk was copied'",
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "" {
				return misuse("to revoke a key needs its id").Hinting("see: %s; the newest is called current", a.line("keys", "list"))
			}
			if reason == "" {
				return misuse("to revoke a key needs a reason").Hinting("add --reason \"why\"; peers are told and record it")
			}
			return a.changeKey(c.Context(), func(ctx context.Context, client *api.ClientWithResponses) (api.Keys, error) {
				return control.Answer(client.RevokeKeyWithResponse(ctx, api.KeyRevocation{Key: args[0], Reason: reason}))
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "record `WHY` (required)")
	return c
}

// changeKey makes a change and says what is true then.
func (a *app) changeKey(ctx context.Context, change func(context.Context, *api.ClientWithResponses) (api.Keys, error)) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	v, err := change(ctx, client.API())
	if err != nil {
		return err
	}
	a.did("the new signing key is %s; see: %s", v.Signing[0].ID, a.line("keys", "list"))
	if !a.forPeople() {
		return a.print(v, []any{v}, keyTable(v))
	}
	fmt.Fprintf(a.out, "the new signing key is %s\n", v.Signing[0].ID)
	again := "make another"
	if !a.away() {
		again = a.line("backup", "DIR")
	}
	fmt.Fprintf(a.err, "a backup of before lacks this key and is out of date; back up again: %s\n", again)
	if len(v.Waiting) == 0 {
		return nil
	}
	conns, err := listed(ctx, client)
	if err != nil {
		return err
	}
	for _, line := range a.unconfirmed(v.Waiting, conns) {
		fmt.Fprintln(a.err, printable(line))
	}
	return nil
}

// unconfirmed says of the peers that have not confirmed the new key which are told
// when they are linked, and which have ended the key that tells them.
func (a *app) unconfirmed(waiting []string, conns []connectionView) (lines []string) {
	waiting = slices.Clone(waiting)
	for _, c := range conns {
		at := slices.Index(waiting, c.Name)
		if c.Says.Refuses != nil && at >= 0 && !c.State.Ended() {
			waiting = slices.Delete(waiting, at, at+1)
			lines = append(lines, fmt.Sprintf("%s refuses the key that tells it: %s", c.Name, a.mendRefused(c)))
		} else if c.RefusesKeys != "" && at >= 0 && !c.State.Ended() {
			waiting = slices.Delete(waiting, at, at+1)
			lines = append(lines, c.Name+" "+a.refusedKeys(c.RefusesKeys))
		}
	}
	if len(waiting) > 0 {
		lines = append(lines, fmt.Sprintf("not confirmed yet by: %s; they are told when they are linked; see: %s", strings.Join(waiting, ", "), a.line("keys", "list")))
	}
	return lines
}

// eachKey are the keys as -o ndjson lists them, each with its use, and with a peer where it is another's.
func eachKey(v api.Keys) []any {
	type own struct {
		Use api.PeerKeyUse `json:"use"`
		api.SigningKey
	}
	type identity struct {
		Use   api.PeerKeyUse      `json:"use"`
		ID    string              `json:"id"`
		State api.SigningKeyState `json:"state"`
	}
	list := []any{identity{api.Identity, v.Identity, api.SigningKeyStateCurrent}}
	for _, k := range v.Signing {
		list = append(list, own{api.Signing, k})
	}
	return append(list, anys(v.Peers)...)
}

func (a *app) printKeys(v api.Keys) error { return a.print(v, eachKey(v), keyTable(v)) }

// shortKey is the beginning of a key as it may be typed: without the name of the algorithm, unless that keeps it from being taken for
// a flag.
func shortKey(id string) string {
	short := strings.TrimPrefix(id, "ed25519:")
	if strings.HasPrefix(short, "-") {
		return id[:len(id)-len(short)+12]
	}
	return short[:12]
}

func keyTable(v api.Keys) table {
	t := table{head: []string{"OF", "USE", "STATE", "SINCE", "KEY", "SIGNS FOR"}, wide: []string{"ENDED", "VERIFIES UNTIL", "ID"}, drops: []string{"SINCE", "USE"}}
	add := func(of, use, state string, since time.Time, id string, peers []string, ended, until time.Time) {
		when := func(t time.Time) string {
			if t.IsZero() {
				return "-"
			}
			return t.Local().Format(time.DateTime)
		}
		t.names = append(t.names, id)
		t.rows = append(t.rows, []string{of, use, state, when(since), shortKey(id), strings.Join(peers, ","), when(ended), when(until), id})
	}
	never := time.Time{}
	add("this instance", "identity", "current", never, v.Identity, nil, never, never)
	for _, k := range v.Signing {
		ended := k.RevokedAt
		if ended.IsZero() {
			ended = k.RetiredAt
		}
		add("this instance", "signing", string(k.State), k.Since, k.ID, k.SignsFor, ended, k.VerifiesUntil)
	}
	for _, k := range v.Peers {
		add(k.Peer, string(k.Use), string(k.State), k.Since, k.ID, nil, k.RevokedAt, k.Until)
	}
	return t
}
