package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub"
)

func (a *app) inviteCommand() *cobra.Command {
	var name string
	ttl := days(hub.DefaultInvite)
	c := &cobra.Command{
		Use: "invite --name NAME", Short: "Make a join token for one spoke", Args: cobra.NoArgs,
		Long: `Make a join token for one spoke: one line on standard output, for one use.

Carry it to the other host in a way that nobody else sees; it is spent when the
spoke has joined. Its secret is never sent over the network.`,
		Example: `  spawnmesh invite --name attic > token
  spawnmesh invite --name attic | ssh attic spawnmesh spoke join`,
		RunE: func(c *cobra.Command, _ []string) error {
			if name == "" {
				return misuse("an invitation needs a name").Hinting("add --name NAME: what the spoke is called on this hub")
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
			if a.wantsJSON() {
				return a.print(v, []any{v}, table{})
			}
			fmt.Fprintln(a.out, v.Token)
			fmt.Fprintf(a.err, "for %s, one use, until %s; this hub's fingerprint is %s\n", v.Name, v.Expires.Local().Format(time.DateTime), v.Fingerprint)
			return nil
		},
	}
	c.Flags().StringVar(&name, "name", "", "call the spoke `NAME` on this hub (required)")
	c.Flags().Var(&ttl, "ttl", "how long the token can be used, at most 24h")
	return c
}
