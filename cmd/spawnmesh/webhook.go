package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) webhookCommand() *cobra.Command {
	c := &cobra.Command{Use: "webhook", Short: "Tell programs by HTTP what changes"}
	list := &cobra.Command{
		Use: "list", Short: "List webhooks, and how they do", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, err := control.Answer(c.API().ListWebhooksWithResponse(ctx))
				if err != nil {
					return err
				}
				return a.printWebhooks(list.Items)
			})
		},
	}
	show := a.limitCommand("show NAME", "Show a webhook, its key, and how it does", func(ctx context.Context, c *api.ClientWithResponses, name string) error {
		v, err := control.Answer(c.GetWebhookWithResponse(ctx, name))
		if err != nil {
			return err
		}
		return a.printWebhook(v)
	})
	c.AddCommand(a.webhookCreateCommand(), list, show, a.webhookTestCommand(), a.webhookRotateCommand(), a.webhookDeliveriesCommand(), a.webhookResendCommand(),
		a.webhookDisableCommand(), a.webhookEnableCommand(), a.webhookDeleteCommand())
	return c
}

func (a *app) webhookCreateCommand() *cobra.Command {
	var v api.NewWebhook
	c := &cobra.Command{
		Use: "create NAME URL", Short: "Tell a program by HTTP what changes from now on", Args: cobra.ExactArgs(2),
		Long: `Tell a program by HTTP what changes from now on: the hub sends each event to URL
with POST, until it is answered with a status from 200 to 299.

--on says of what it is told:

  task.status_changed       an agent got into another state
  agent.progress            it said how far it is, at most every 10 seconds
  agent.overrun             it runs much longer than estimated
  connection.state_changed  a connection was made, suspended, resumed or ended
  connection.link_changed   a link went up or down

What is sent is signed as Standard Webhooks 1.0.0 says (v1a, Ed25519). The key that
is shown verifies it, and is no secret. An event may come twice, with the same
webhook-id, and not in order: seq is higher in the later one of two.

URL is https, to a host with a public address and port 443. To another port it needs
--port; which other addresses there may be, the hub was told as it was started
(hub run --webhook-allow).`,
		Example: `  spawnmesh webhook create pager https://pager.example.org/spawnmesh --state failed
  spawnmesh webhook create board https://board.example.org/in \
    --on task.status_changed,connection.link_changed`,
		RunE: func(c *cobra.Command, args []string) error {
			v.Name, v.URL = args[0], args[1]
			client, err := a.client()
			if err != nil {
				return err
			}
			made, err := control.Answer(client.API().CreateWebhookWithResponse(c.Context(), v))
			if err != nil {
				return err
			}
			if made.Warning != "" {
				fmt.Fprintf(a.err, "warning: %s\n           the host of the hub says which networks it may send to: hub run --webhook-allow CIDR\n", printable(made.Warning))
			}
			return a.sayWebhook(made, "was created; its receiver verifies by the key "+made.PublicKey+"\nto try it: "+a.line("webhook", "test", made.Name))
		},
	}
	fl := c.Flags()
	fl.StringSliceVar(&v.Types, "on", nil, "it is told of `TYPE`; may be given again (default: task.status_changed)")
	fl.StringSliceVar(&v.States, "state", nil, "of agents only changes to `STATE`; may be given again (default: all)")
	fl.IntVar(&v.Port, "port", 0, "the URL names port `N`, which is not 443, and that is meant")
	return c
}

// sayWebhook says what was done to a webhook that is still there.
func (a *app) sayWebhook(v api.Webhook, what string) error {
	short, _, _ := strings.Cut(what, "\n")
	a.did("webhook %s %s; see: %s", v.Name, short, a.line("webhook", "show", v.Name))
	return a.printChanged(v, what)
}

// printChanged shows a webhook that was changed.
func (a *app) printChanged(v api.Webhook, what string) error {
	if !a.forPeople() {
		return a.printWebhook(v)
	}
	_, err := fmt.Fprintf(a.out, "webhook %s %s\n", v.Name, what)
	return err
}

// heldByRestore reports whether a restore has disabled a webhook, and nobody.
func heldByRestore(v api.Webhook) bool {
	return store.Webhook{Why: v.Why, DisabledBy: v.DisabledBy}.Restored()
}

// doing says in a word how a webhook does: one that a restore has disabled waits for somebody who knows whether it is wanted still.
func doing(v api.Webhook) string {
	if v.State == api.WebhookStateActive && v.Failures > 0 {
		return "failing"
	}
	if heldByRestore(v) {
		return store.Restored
	}
	return string(v.State)
}

// webhookState is [doing] for who is told why, too.
func webhookState(v api.Webhook) string {
	word := doing(v)
	if word == string(api.WebhookStateDisabled) {
		word = strings.TrimSuffix(word+": "+v.Why, ": ")
	}
	return word
}

func (a *app) printWebhooks(list []api.Webhook) error {
	t := table{head: []string{"NAME", "STATE", "URL", "TOLD OF", "PENDING"}, wide: []string{"STATES", "BY", "LAST ERROR"},
		empty: "no webhooks yet; create one: " + a.self() + " webhook create NAME URL"}
	for _, v := range list {
		t.names = append(t.names, v.Name)
		t.rows = append(t.rows, []string{v.Name, doing(v), v.URL, strings.Join(v.Types, ","), strconv.Itoa(v.Pending), strings.Join(v.States, ","), v.CreatedBy, v.LastError})
	}
	return printList(a, list, t)
}

func (a *app) printWebhook(v api.Webhook) error {
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Name}})
	}
	var list pairs
	list.add("webhook", v.Name+" ("+v.ID+")")
	list.add("state", webhookState(v))
	if v.DisabledBy != "" {
		list.add("disabled", localTime(v.DisabledAt)+" by "+v.DisabledBy)
	}
	list.add("url", v.URL)
	list.add("told of", strings.Join(v.Types, ", "))
	list.add("states", strings.Join(v.States, ", "))
	list.add("key", v.PublicKey)
	if v.OldPublicKey != "" {
		list.add("old key", v.OldPublicKey+", which signs, too, until "+localTime(v.OldPublicKeyUntil))
	}
	list.add("pending", strconv.Itoa(v.Pending))
	switch {
	case v.Failures > 0:
		list.add("failing", fmt.Sprintf("%d in a row since %s: %s", v.Failures, localTime(v.FailingSince), v.LastError))
	case v.LastError != "":
		list.add("failed", "the last time: "+v.LastError)
	}
	if !v.HeldUntil.IsZero() {
		list.add("held", "nothing is sent before "+localTime(v.HeldUntil))
	}
	list.add("created", localTime(v.CreatedAt)+" by "+v.CreatedBy)
	return a.align(list, 0)
}
