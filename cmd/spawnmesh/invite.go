package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) inviteCommand() *cobra.Command {
	var name, file string
	ttl := days(hub.DefaultInvite)
	c := &cobra.Command{
		Use: "invite --name NAME", Short: "Make a join token for one spoke", Args: cobra.NoArgs,
		Long: `Make a join token for one spoke: one line, for one use, on standard output or in a
new FILE that only its owner can read.

Carry it to the other host in a way that nobody else sees; it is spent when the
spoke has joined. Its secret is never sent over the network.`,
		Example: `  spawnmesh invite --name attic --out token
  spawnmesh invite --name attic | ssh attic spawnmesh spoke join --yes
  spawnmesh invite list
  spawnmesh invite revoke attic`,
		RunE: func(c *cobra.Command, _ []string) error { return a.invite(c.Context(), name, time.Duration(ttl), file) },
	}
	c.Flags().StringVar(&name, "name", "", "call the spoke `NAME` on this hub (required)")
	c.Flags().StringVar(&file, "out", "", "write the token to a new `FILE` with mode 0600")
	c.Flags().Var(&ttl, "ttl", "how long the token can be used, at most 24h")
	list := &cobra.Command{
		Use: "list", Short: "List invites and what became of them, the newest first", Args: cobra.NoArgs,
		Long: `List invites and what became of them, the newest first. An invite is open, used,
revoked or expired; a month after it could be used last it is forgotten.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.listInvites(c.Context()) },
	}
	c.AddCommand(list, a.inviteRevokeCommand())
	return c
}

func (a *app) invite(ctx context.Context, name string, ttl time.Duration, file string) error {
	if name == "" {
		return misuse("an invitation needs a name").Hinting("add --name NAME: what the spoke is called on this hub")
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	var v api.Invitation
	var token join.Token
	err = a.secretInto(file, "invite", &v.Token, func() (err error) {
		v, err = control.Answer(client.API().CreateInviteWithResponse(ctx, api.NewInvite{Name: name, TTLMS: ttl.Milliseconds()}))
		if err == nil {
			token, err = join.ParseToken(v.Token)
		}
		return err
	}, func() []string { return []string{"invite", "revoke", v.ID} })
	if err != nil {
		return err
	}
	a.did("the invite %s for %s was made, and its token is lost; revoke it and make another: %s", v.ID, v.Name, a.line("invite", "revoke", v.ID))
	program, err := thisProgram()
	if err != nil {
		return err
	}
	if a.wantsJSON() {
		told := struct {
			api.Invitation
			programOf
		}{v, program}
		return a.print(told, []any{told}, table{})
	}
	if v.Token != "" {
		fmt.Fprintln(a.out, v.Token)
	}
	fmt.Fprintf(a.err, "for %s, one use, until %s; this hub's fingerprint is %s, its id %s\n", v.Name, v.Expires.UTC().Format(time.RFC3339), v.Fingerprint, token.Hub)
	if v.Note != "" {
		fmt.Fprintln(a.err, "note: the token", v.Note)
	}
	fmt.Fprintln(a.err, program.joining(file))
	return nil
}

// secretInto moves the token that ask gets into a new file, where one is named. The file is there before the thing
// that the token is for: what cannot be written is not asked for. undo ends that thing.
func (a *app) secretInto(file, thing string, token *string, ask func() error, undo func() []string) error {
	if file == "" {
		return ask()
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return commands.Refuse(commands.Conflict, "there is a file %s already", file).Hinting("name another one, or remove it")
	}
	if err != nil {
		return misuse("the token cannot be written: %v", err)
	}
	err = ask()
	if err == nil {
		if _, err = fmt.Fprintln(f, *token); err != nil {
			err = &commands.Refused{Code: commands.Internal, Why: "the token could not be written", Err: err,
				Hint: "it is lost; revoke the " + thing + " and make another", Run: undo()}
		}
		*token = ""
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(file)
	}
	return err
}

func (a *app) listInvites(ctx context.Context) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := control.Answer(client.API().ListInvitesWithResponse(ctx))
	if err != nil {
		return err
	}
	t := table{head: []string{"NAME", "STATE", "UNTIL", "BY", "ID"}, wide: []string{"MADE", "CONNECTION"}, drops: []string{"BY"},
		empty: "no invites; make one: " + a.self() + " invite --name NAME"}
	for _, v := range list.Items {
		t.names = append(t.names, v.ID)
		t.rows = append(t.rows, []string{v.Name, string(v.State), v.Expires.Local().Format(time.DateTime), v.By, v.ID,
			v.CreatedAt.Local().Format(time.DateTime), v.Connection})
	}
	return printList(a, list.Items, t)
}

func (a *app) inviteRevokeCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "revoke ID|NAME", Short: "End an invite that nobody has used", Args: cobra.ExactArgs(1),
		Long: `End an invite that nobody has used: its token lets nobody in from then on. An
invite is named by its id, by the beginning of it, or by the name that it is for.`,
		Example: "  spawnmesh invite revoke attic --reason 'the token was mailed around'",
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			v, err := control.Answer(client.API().RevokeInviteWithResponse(c.Context(), args[0], api.Reason{Reason: reason}))
			if err != nil {
				return err
			}
			a.did("the invite for %s is %s; see: %s", v.Name, v.State, a.line("invite", "list"))
			if a.forPeople() {
				fmt.Fprintf(a.out, "the invite for %s is %s\n", v.Name, v.State)
				return nil
			}
			return a.print(v, []any{v}, table{names: []string{v.ID}})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "record `WHY`")
	return c
}
