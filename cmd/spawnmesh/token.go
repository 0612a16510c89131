package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) tokenCommand() *cobra.Command {
	c := &cobra.Command{Use: "token", Short: "Make and end tokens for programs that ask a hub"}
	list := &cobra.Command{
		Use: "list", Short: "List tokens and whether they can be used, the newest first", Args: cobra.NoArgs,
		Long: `List tokens and whether they can be used, the newest first. LAST USED is up to a
minute before the last time. A token is forgotten a month after it could be used.

One that is "restored" is from before the hub was restored from a backup, and lets
nobody in until it is confirmed (token confirm).`,
		RunE: func(c *cobra.Command, _ []string) error { return a.listTokens(c.Context()) },
	}
	c.AddCommand(a.tokenConfirmCommand(), a.tokenCreateCommand(), list, a.tokenRevokeCommand())
	return c
}

func (a *app) tokenCreateCommand() *cobra.Command {
	var v api.NewToken
	var role, file string
	expires := days(90 * 24 * time.Hour)
	c := &cobra.Command{
		Use: "create --name NAME --role ROLE --workspace WORKSPACE", Short: "Make a token for a program that asks a hub", Args: cobra.NoArgs,
		Long: `Make a token for a program that asks a hub over the network (hub run --api): one
line on standard output, or in a new FILE that only its owner can read. It is shown
this once; the hub keeps a digest.

  viewer            reads, without what agents were given and what they wrote
  operator          reads, orders agents and ends them
  worker            claims tasks of a backlog, and says what became of them
  federation-admin  admits peers, suspends them and ends them
  owner             everything

A token for one workspace can do nothing elsewhere, and nothing about the instance
itself. Agents on spokes belong to the instance: they need --workspace '*'.`,
		Example: `  spawnmesh token create --name prometheus --role viewer --workspace '*' --out token
  spawnmesh token create --name worker-1 --role worker --workspace main --expires 7d`,
		RunE: func(c *cobra.Command, _ []string) error {
			v.Role, v.TTLMS = api.Role(role), time.Duration(expires).Milliseconds()
			return a.createToken(c.Context(), v, file)
		},
	}
	c.Flags().StringVar(&v.Name, "name", "", "the audit calls who uses it `NAME` (required)")
	c.Flags().StringVar(&role, "role", "", "what it is for: `ROLE` (required)")
	c.Flags().StringVar(&v.Workspace, "workspace", "", "the only `WORKSPACE` it is for; * = every one, and the instance (required)")
	c.Flags().StringVar(&file, "out", "", "write the token to a new `FILE` with mode 0600")
	c.Flags().Var(&expires, "expires", "how long it can be used, at most 366d")
	return c
}

func (a *app) createToken(ctx context.Context, want api.NewToken, file string) error {
	if want.Name == "" || want.Role == "" || want.Workspace == "" {
		return misuse("a token needs a name, a role and a workspace").Hinting("add --name NAME --role ROLE --workspace WORKSPACE; see: spawnmesh token create --help")
	}
	if want.TTLMS <= 0 {
		return misuse("--expires is above 0")
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	var v api.TokenCreated
	err = a.secretInto(file, "token", &v.Token, func() (err error) {
		v, err = control.Answer(client.API().CreateTokenWithResponse(ctx, want))
		return err
	}, func() []string { return []string{"token", "revoke", v.ID} })
	if err != nil {
		return err
	}
	a.did("the token %s was made, and its text is lost; revoke it and make another: %s", v.Name, a.line("token", "revoke", v.ID))
	if a.wantsJSON() {
		return a.print(v, []any{v}, table{})
	}
	if v.Token != "" {
		fmt.Fprintln(a.out, v.Token)
	}
	fmt.Fprintf(a.err, "%s is %s in %s until %s; end it with: %s\n", v.Name, v.Role, inWords(v.Workspace), v.Expires.UTC().Format(time.RFC3339), a.line("token", "revoke", v.Name))
	return nil
}

// inWords names the workspace of a token.
func inWords(workspace string) string {
	if workspace == api.Everywhere {
		return "every workspace"
	}
	return "the workspace " + workspace
}

func (a *app) listTokens(ctx context.Context) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := control.Answer(client.API().ListTokensWithResponse(ctx))
	if err != nil {
		return err
	}
	return a.printTokens(list.Items)
}

func (a *app) printTokens(list []api.Token) error {
	t := table{head: []string{"NAME", "STATE", "ROLE", "WORKSPACE", "UNTIL", "LAST USED", "ID"}, wide: []string{"MADE", "BY", "REVOKED"},
		empty: "no tokens; make one: " + a.self() + " token create --name NAME --role ROLE --workspace WORKSPACE"}
	for _, v := range list {
		t.names = append(t.names, v.ID)
		t.rows = append(t.rows, []string{v.Name, string(v.State), string(v.Role), v.Workspace, localTime(v.Expires), localTime(v.UsedAt), v.ID, localTime(v.CreatedAt), v.By, localTime(v.RevokedAt)})
	}
	return printList(a, list, t)
}

// localTime is a time in a table, - for none.
func localTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "revoke ID|NAME", Short: "End a token at once", Args: cobra.ExactArgs(1),
		Long: `End a token: nobody is let in with it from then on, and what is being answered to
who has it is cut off within two seconds.`,
		Example: "  spawnmesh token revoke worker-1 --reason 'its host was copied'",
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "" {
				return misuse("to revoke a token needs its id or its name").Hinting("see: %s", a.line("token", "list"))
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			v, err := control.Answer(client.API().RevokeTokenWithResponse(c.Context(), args[0], api.Reason{Reason: reason}))
			if err != nil {
				return err
			}
			a.did("the token %s is %s; see: %s", v.Name, v.State, a.line("token", "list"))
			if a.forPeople() {
				fmt.Fprintf(a.out, "the token %s is %s\n", v.Name, v.State)
				return nil
			}
			return a.print(v, []any{v}, table{names: []string{v.ID}})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "record `WHY`")
	return c
}
