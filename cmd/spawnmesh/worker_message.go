package main

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/spoke/door"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

func (w *worker) messageCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "message", Short: "Send messages to other agents of the same hub, and read theirs",
		Long: `Send messages to other agents of the same hub on this host, and read theirs. The
agent speaks and reads as agent:TASK, with the id of its task, and as nobody else.`,
	}
	c.AddCommand(w.sendCommand(), w.pollCommand(), w.ackCommand())
	return c
}

func (w *worker) sendCommand() *cobra.Command {
	var l letter
	c := &cobra.Command{
		Use: "send", Short: "Send a message to another agent, or to all", Args: cobra.NoArgs,
		Long: `Send a message to another agent, or to all of the same hub on this host. It is stored
before this returns. With --id it may be sent again: it is stored once.`,
		Example: `  spawnmesh worker message send --type x-note --payload '"the schema is done"'`,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := l.said(c.Context(), w.a, messages.MaxPayload)
			if err != nil {
				return err
			}
			m := door.Letter{ID: l.id, To: l.to, Type: l.kind, Correlation: l.correlation, InReplyTo: l.reply}
			if text != "" {
				if m.Payload, err = compacted(text); err != nil {
					return err
				}
			}
			var got api.Message
			if err := w.ask(c.Context(), http.MethodPost, "/v1/messages", m, &got); err != nil {
				return err
			}
			return w.a.saySent(got, "")
		},
	}
	l.flags(c)
	return c
}

func (w *worker) pollCommand() *cobra.Command {
	var wait days
	p := door.Poll{}
	c := &cobra.Command{
		Use: "poll", Short: "Read what this agent has not acknowledged", Args: cobra.NoArgs,
		Long: `Read what this agent has not acknowledged, the oldest first. It moves nothing: the
same comes again, in a later attempt, too, until worker message ack says that it is
done.`,
		Example: "  spawnmesh worker message poll --wait 5m -o ndjson",
		RunE: func(c *cobra.Command, _ []string) error {
			page, err := pollFor(c.Context(), time.Duration(wait), func(wait time.Duration) (page api.MessagePage, err error) {
				p.WaitMS = wait.Milliseconds()
				return page, w.ask(c.Context(), http.MethodPost, "/v1/messages/poll", p, &page)
			})
			if err != nil {
				return err
			}
			return w.a.printPolled(page, "spawnmesh worker message ack SEQ")
		},
	}
	c.Flags().Var(&wait, "wait", "wait for one for so long")
	c.Flags().IntVar(&p.Limit, "limit", 100, "at most `N`, up to 100")
	return c
}

func (w *worker) ackCommand() *cobra.Command {
	var failed string
	c := &cobra.Command{
		Use: "ack SEQ", Short: "Acknowledge all messages up to a number", Args: cobra.ExactArgs(1),
		Long: `Acknowledge all messages up to a number. With --failed the first one that is not
acknowledged has failed: it comes again after 1, 2, 4 and 8 s, and after five times
it is laid aside.`,
		Example: "  spawnmesh worker message ack 42",
		RunE: func(c *cobra.Command, args []string) error {
			ack, err := ackOf(args[0], failed)
			if err != nil {
				return err
			}
			return w.acknowledge(c.Context(), ack)
		},
	}
	c.Flags().StringVar(&failed, "failed", "", "it has failed, and `WHY`")
	return c
}

func (w *worker) acknowledge(ctx context.Context, ack api.MessageAck) error {
	var v door.Acked
	if err := w.ask(ctx, http.MethodPost, "/v1/messages/ack", door.Ack{Seq: ack.Seq, Failed: ack.Failed}, &v); err != nil {
		return err
	}
	if !w.a.forPeople() {
		return w.a.print(v, []any{v}, table{names: []string{v.Name}})
	}
	return w.a.sayReader(api.Reader{Name: v.Name, Acked: v.Acked, Head: v.Head, Tries: v.Tries})
}
