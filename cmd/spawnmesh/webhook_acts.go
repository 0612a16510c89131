package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) webhookTestCommand() *cobra.Command {
	return &cobra.Command{
		Use: "test NAME", Short: "Send a test message to a webhook", Args: cobra.ExactArgs(1),
		Long: `Send a message of the type webhook.test to a webhook, once, and say what its receiver
answered. It is sent to a webhook that is disabled, too.`,
		Example: "  spawnmesh webhook test pager",
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			d, err := control.Answer(client.API().TestWebhookWithResponse(c.Context(), args[0]))
			if err != nil {
				return err
			}
			if d.State != api.DeliveryStateDelivered {
				return commands.Refuse(commands.Unreachable, "testing the webhook %s: %s", args[0], d.Error).Hinting("see its URL and its key").Running("webhook", "show", args[0])
			}
			return a.sayDelivery(d, fmt.Sprintf("was taken: its receiver answered %d", d.Status))
		},
	}
}

func (a *app) webhookResendCommand() *cobra.Command {
	return &cobra.Command{
		Use: "resend NAME DELIVERY", Short: "Send a delivery to a webhook again", Args: cobra.ExactArgs(2),
		Long:    "Send a delivery to a webhook again, under its id, whether it was taken or not.",
		Example: "  spawnmesh webhook resend pager msg_01932f0c5d7a7c3e8f6b2a1d0c9e8f7a_4711",
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			d, err := control.Answer(client.API().ResendDeliveryWithResponse(c.Context(), args[0], args[1]))
			if err != nil {
				return err
			}
			return a.sayDelivery(d, "is sent again; see: "+a.line("webhook", "deliveries", args[0]))
		},
	}
}

// sayDelivery says what has become of a delivery.
func (a *app) sayDelivery(d api.Delivery, what string) error {
	a.did("delivery %s %s", d.ID, what)
	if !a.forPeople() {
		return a.print(d, []any{d}, table{names: []string{d.ID}})
	}
	_, err := fmt.Fprintf(a.out, "delivery %s %s\n", d.ID, what)
	return err
}

func (a *app) webhookDeliveriesCommand() *cobra.Command {
	limit := 20
	c := &cobra.Command{
		Use: "deliveries NAME", Short: "List what a webhook was told, or is to be", Args: cobra.ExactArgs(1),
		Long: `List what a webhook was told, or is to be, the newest first. Those that were taken or
given up are kept for a while (retention deliveries).`,
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 1 {
				return misuse("--limit is 1 or more")
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, more, err := paged(limit, false, func(cursor string, most int) (control.Items[api.Delivery], error) {
					page, err := control.Answer(c.API().ListDeliveriesWithResponse(ctx, args[0], &api.ListDeliveriesParams{Cursor: cursor, Limit: &most}))
					return control.Items[api.Delivery]{Items: page.Items, Next: page.Next}, err
				})
				if err == nil {
					err = a.printDeliveries(list)
				}
				a.sayMore(err == nil && more, "deliveries", "--limit N")
				return err
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", limit, "at most `N`, the newest")
	return c
}

func (a *app) printDeliveries(list []api.Delivery) error {
	t := table{head: []string{"DELIVERY", "TYPE", "AT", "STATE", "TRIES", "NEXT TRY", "ERROR"}, wide: []string{"STATUS", "ENDED"}, empty: "nothing was told yet"}
	for _, d := range list {
		t.names = append(t.names, d.ID)
		t.rows = append(t.rows, []string{d.ID, d.Type, localTime(d.At), string(d.State), fmt.Sprint(d.Tries), localTime(d.NextTryAt), d.Error, fmt.Sprint(d.Status), localTime(d.EndedAt)})
	}
	return printList(a, list, t)
}

func (a *app) webhookRotateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rotate NAME", Short: "Sign what a webhook is told by a new key", Args: cobra.ExactArgs(1),
		Long: `Sign what a webhook is told by a new key. The key of now signs, too, for 24 hours:
give the new one to the receiver until then.`,
		Example: "  spawnmesh webhook rotate pager",
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			v, err := control.Answer(client.API().RotateWebhookWithResponse(c.Context(), args[0]))
			if err != nil {
				return err
			}
			return a.sayWebhook(v, "is signed by the key "+v.PublicKey+"\nuntil "+localTime(v.OldPublicKeyUntil)+" by the one before, too: "+v.OldPublicKey)
		},
	}
}

func (a *app) changeWebhook(c *cobra.Command, name string, v api.WebhookChange, what string) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	w, err := control.Answer(client.API().ChangeWebhookWithResponse(c.Context(), name, v))
	if err != nil {
		return err
	}
	if w.Already {
		what += already(w.DisabledBy, w.DisabledAt, w.Why)
	}
	return a.sayWebhook(w, what)
}

func (a *app) webhookDisableCommand() *cobra.Command {
	v := api.WebhookChange{State: api.WebhookStateDisabled}
	c := &cobra.Command{
		Use: "disable NAME", Short: "Tell a webhook nothing until it is enabled", Args: cobra.ExactArgs(1),
		Long:    "Tell a webhook nothing until it is enabled. What waits for it is given up.",
		Example: "  spawnmesh webhook disable pager --reason 'its host moves'",
		RunE: func(c *cobra.Command, args []string) error {
			if strings.TrimSpace(v.Reason) == "" {
				return misuse("to disable a webhook needs a reason").Hinting("add --reason \"why\"; it is shown with the webhook")
			}
			return a.changeWebhook(c, args[0], v, "is disabled")
		},
	}
	c.Flags().StringVar(&v.Reason, "reason", "", "record `WHY` (required)")
	return c
}

func (a *app) webhookEnableCommand() *cobra.Command {
	v := api.WebhookChange{State: api.WebhookStateActive}
	all := false
	c := &cobra.Command{
		Use: "enable NAME", Short: "Tell a webhook again what changes", Args: cobra.MaximumNArgs(1),
		Long: `Tell a webhook again what changes from now on. First it is told which events it may
not have been told of (events.gap): from the first that waited on, though it can have
had others after that.

A hub that was restored from a backup has disabled its webhooks (restored), and has
those again that were deleted since: delete these first. With --all all the others go
on. What somebody has disabled stays so.`,
		Example: "  spawnmesh webhook enable pager\n  spawnmesh webhook enable --all",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case all == (len(args) == 1):
				return misuse("enable takes the name of a webhook, or --all").Hinting("see").Running("webhook", "list")
			case all:
				return a.enableRestored(c, v)
			}
			return a.changeWebhook(c, args[0], v, "is told of what changes from now on")
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all that were disabled because the hub was restored from a backup")
	c.Flags().StringVar(&v.Reason, "reason", "", "record `WHY`")
	return c
}

// enableRestored lets those go on that a restore has disabled.
func (a *app) enableRestored(c *cobra.Command, v api.WebhookChange) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := control.Answer(client.API().ListWebhooksWithResponse(c.Context()))
	if err != nil {
		return err
	}
	return letGoOn(a, list.Items, held[api.Webhook]{
		is: heldByRestore,
		goOn: func(w api.Webhook) (api.Webhook, error) {
			return control.Answer(client.API().ChangeWebhookWithResponse(c.Context(), w.ID, v))
		},
		list: "webhook", did: "webhooks go on", none: "no webhook is disabled because of a restore", show: a.printWebhooks,
	})
}

func (a *app) webhookDeleteCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete NAME", Short: "Forget a webhook", Args: cobra.ExactArgs(1),
		Long:    "Forget a webhook, its keys, and what it was told.",
		Example: "  spawnmesh webhook delete pager --yes",
		RunE: func(c *cobra.Command, args []string) error {
			const lost = "its receiver is told nothing more, and its key never signs again"
			if !yes {
				no := misuse("the webhook %s was not deleted: %s", args[0], lost).Hinting("add --yes if you mean it")
				if err := a.meant(c.Context(), lost+"; delete the webhook "+printable(args[0])+"?", no); err != nil {
					return err
				}
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			v, err := control.Answer(client.API().DeleteWebhookWithResponse(c.Context(), args[0]))
			if err != nil {
				return err
			}
			a.did("webhook %s is deleted", v.Name)
			return a.printChanged(v, "is deleted")
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask whether it is meant")
	return c
}
