package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) tokenConfirmCommand() *cobra.Command {
	var v api.Reason
	all := false
	c := &cobra.Command{
		Use: "confirm ID|NAME", Short: "Let a token be used after the hub was restored from a backup", Args: cobra.MaximumNArgs(1),
		Long: `Let a token be used again. A hub that was restored from a backup lets nobody in by
the tokens of the backup (restored): one may have been revoked since. Revoke these
again, then confirm the others, with --all at once.`,
		Example: "  spawnmesh token confirm worker-1\n  spawnmesh token confirm --all",
		RunE: func(c *cobra.Command, args []string) error {
			if all == (len(args) == 1) || len(args) == 1 && args[0] == "" {
				return misuse("confirm takes the id or the name of a token, or --all").Hinting("see").Running("token", "list")
			}
			if all {
				return a.confirmRestored(c, v)
			}
			t, err := a.confirmToken(c, args[0], v)
			if err != nil {
				return err
			}
			if a.forPeople() {
				fmt.Fprintf(a.out, "the token %s is %s\n", t.Name, t.State)
				return nil
			}
			return a.print(t, []any{t}, table{names: []string{t.ID}})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all that let nobody in because the hub was restored from a backup")
	c.Flags().StringVar(&v.Reason, "reason", "", "record `WHY`")
	return c
}

func (a *app) confirmToken(c *cobra.Command, text string, v api.Reason) (api.Token, error) {
	client, err := a.client()
	if err != nil {
		return api.Token{}, err
	}
	t, err := control.Answer(client.API().ConfirmTokenWithResponse(c.Context(), text, v))
	if err == nil {
		a.did("the token %s is %s; see: %s", t.Name, t.State, a.line("token", "list"))
	}
	return t, err
}

// confirmRestored confirms those that a restore has held.
func (a *app) confirmRestored(c *cobra.Command, v api.Reason) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := control.Answer(client.API().ListTokensWithResponse(c.Context()))
	if err != nil {
		return err
	}
	return letGoOn(a, list.Items, held[api.Token]{
		is:   func(t api.Token) bool { return t.State == api.TokenStateRestored },
		goOn: func(t api.Token) (api.Token, error) { return a.confirmToken(c, t.ID, v) },
		list: "token", did: "tokens were confirmed", none: "no token waits to be confirmed", show: a.printTokens,
	})
}
