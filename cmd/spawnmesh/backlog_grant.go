package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) backlogGrantCommand() *cobra.Command {
	c := &cobra.Command{Use: "grant", Short: "Check the grants of claims, and change the key that signs them"}
	c.AddCommand(a.grantVerifyCommand(), a.grantRotateCommand())
	return c
}

func (a *app) grantVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify GRANT", Short: "Check whether a claim's grant still holds", Args: cobra.ExactArgs(1),
		Long: `Check whether a claim's grant still holds; - reads it from standard input. The exit
code is 5 when it does not, and the message says which of its parts is wrong.`,
		RunE: func(c *cobra.Command, args []string) error {
			text := args[0]
			if text == "-" {
				line, err := a.readNamed(c.Context(), source{what: "the grant", input: true, most: 4 << 10, line: true})
				if err != nil {
					return err
				}
				text = strings.TrimSpace(line)
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error { return a.verifyGrant(ctx, c, text) })
		},
	}
}

func (a *app) verifyGrant(ctx context.Context, c *control.Client, text string) error {
	g, err := control.Answer(c.API().VerifyClaimGrantWithResponse(ctx, a.workspace, api.GrantCheck{Grant: text}))
	if err != nil {
		return err
	}
	if !a.forPeople() {
		return a.print(grantView{g.Fence, g.KeyID, g.ExpiresAt}, []any{grantView{g.Fence, g.KeyID, g.ExpiresAt}}, table{names: []string{g.Fence}})
	}
	f, err := backlog.ParseFence(g.Fence)
	if err == nil {
		_, err = fmt.Fprintf(a.out, "the grant holds: attempt %d of task %s, until %s\n", f.Attempt, commands.ShortID(f.Task), clock(&g.ExpiresAt))
	}
	return err
}

// A grantView is what a program learns of a grant that holds.
type grantView struct {
	Fence   string    `json:"fence"`
	KeyID   string    `json:"key_id"`
	Expires time.Time `json:"expires_at"`
}

func (a *app) grantRotateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "Sign new grants with a new key; those that are out stay valid", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				k, err := control.Answer(c.API().RotateGrantKeyWithResponse(ctx, a.workspace))
				if err != nil {
					return err
				}
				a.did("new grants are signed with the key %s", k.KeyID)
				if a.forPeople() {
					_, err = fmt.Fprintf(a.out, "new grants are signed with the key %s\n", k.KeyID)
					return err
				}
				return a.print(k, []any{k}, table{names: []string{k.KeyID}})
			})
		},
	}
}
