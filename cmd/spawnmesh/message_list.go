package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) messageListCommand() *cobra.Command {
	var p api.ListMessagesParams
	limit := pageLength
	c := &cobra.Command{
		Use: "list", Short: "List messages, the newest first", Args: cobra.NoArgs,
		Long: `List messages, the newest first, by one of the flags. --grep finds words of the
payload: all of them, "two words" in a row, not -those, or these or others. It does
not look into blobs.`,
		Example: "  spawnmesh message list --type task_failed\n  spawnmesh message list --grep 'timeout -retry'",
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 {
				return misuse("--limit is 1 or more")
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error { return a.listMessages(ctx, c, p, limit) })
		},
	}
	f := c.Flags()
	f.StringVar(&p.From, "from", "", "of the sender `NAME`")
	f.StringVar(&p.To, "to", "", "for the reader `NAME` alone")
	f.StringVar(&p.Type, "type", "", "of a `TYPE`")
	f.StringVar(&p.CorrelationID, "correlation", "", "of the conversation `ID`")
	f.StringVar(&p.Grep, "grep", "", "with `WORDS` in the payload")
	f.IntVar(&limit, "limit", limit, "the newest `N`")
	return c
}

func (a *app) listMessages(ctx context.Context, c *control.Client, p api.ListMessagesParams, limit int) error {
	list, more, err := paged(limit, false, func(cursor string, most int) (control.Items[api.Message], error) {
		p.Cursor, p.Limit = cursor, &most
		page, err := control.Answer(c.API().ListMessagesWithResponse(ctx, a.workspace, &p))
		return control.Items[api.Message]{Items: page.Items, Next: page.Next}, err
	})
	if err == nil {
		err = a.printMessages(list, "no such messages")
	}
	a.sayMore(err == nil && more, "messages", "--limit N")
	return err
}

func (a *app) printMessages(list []api.Message, empty string) error {
	t := table{head: []string{"SEQ", "AGE", "FROM", "TO", "TYPE", "SAYS"}, wide: []string{"ID", "CORRELATION", "ANSWERS"}, yields: "SAYS", empty: empty}
	for _, m := range list {
		t.names = append(t.names, m.ID)
		t.rows = append(t.rows, []string{strconv.FormatInt(m.Seq, 10), waitsSince(m.At), m.From, cmp.Or(m.To, "all"), m.Type, commands.OneLine(saysOf(m)), m.ID, m.CorrelationID, m.InReplyTo})
	}
	return printList(a, list, t)
}

// saysOf is the payload of a message as a text, or why it is not there.
func saysOf(m api.Message) string {
	switch {
	case m.PayloadError != "":
		return string(m.PayloadError) + ": " + m.PayloadRef
	case len(m.Payload) > 0:
		return string(m.Payload)
	}
	return m.PayloadRef
}

func (a *app) messageShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show one message", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				m, err := control.Answer(c.API().GetMessageWithResponse(ctx, a.workspace, args[0]))
				if err != nil {
					return err
				}
				return a.printMessage(m)
			})
		},
	}
}

func (a *app) printMessage(m api.Message) error {
	if !a.forPeople() {
		return a.print(m, []any{m}, table{names: []string{m.ID}})
	}
	var list pairs
	list.add("message", fmt.Sprintf("%d (%s)", m.Seq, m.ID))
	list.add("stored", stamp(&m.At, nil))
	list.add("from", m.From)
	list.add("to", cmp.Or(m.To, "all"))
	list.add("type", m.Type)
	list.add("correlation", m.CorrelationID)
	list.add("answers", m.InReplyTo)
	if m.SaidBy != m.From {
		list.add("said by", m.SaidBy)
	}
	list.add("blob", m.PayloadRef)
	list.add("says", saysOf(m))
	return a.align(list, 0)
}

func (a *app) messageThreadCommand() *cobra.Command {
	return &cobra.Command{
		Use: "thread ID", Short: "Show a conversation, the oldest message first", Args: cobra.ExactArgs(1),
		Long: `Show the messages with one correlation id, the oldest first. Of what is said about a
task that is the id of the task. Of a long one the oldest 10,000 are shown.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				list, more, err := a.messagesAfter(ctx, c, 0, api.ListMessagesParams{CorrelationID: args[0]})
				if err != nil {
					return err
				}
				err = a.printMessages(list, "no messages of this conversation")
				if err == nil && more {
					fmt.Fprintf(a.err, "these are the oldest %d, and there are more; the newest: %s\n", len(list), a.line("message", "list", "--correlation", args[0]))
				}
				return err
			})
		},
	}
}

// mostOfThread is how many messages of a conversation are shown.
const mostOfThread = 10_000

func (a *app) messagesAfter(ctx context.Context, c *control.Client, after int64, p api.ListMessagesParams) (all []api.Message, more bool, err error) {
	most := 1000
	for p.After, p.Limit = &after, &most; len(all) <= mostOfThread; {
		page, err := control.Answer(c.API().ListMessagesWithResponse(ctx, a.workspace, &p))
		if err != nil {
			return nil, false, err
		}
		if all = append(all, page.Items...); page.Next == "" {
			return all, false, nil
		}
		after = page.Items[len(page.Items)-1].Seq
	}
	return all[:mostOfThread], true, nil
}

func (a *app) messageReaderCommand() *cobra.Command {
	c := &cobra.Command{Use: "reader", Short: "See how far readers are, and forget some"}
	list := &cobra.Command{
		Use: "list", Short: "List readers, and how far each is", Args: cobra.NoArgs,
		Long: `List readers, and how far each is. What a reader has not acknowledged is kept for it,
unless nobody has seen it for 30 days.`,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				got, err := control.Answer(c.API().ListReadersWithResponse(ctx, a.workspace))
				if err != nil {
					return err
				}
				return a.printReaders(got.Items)
			})
		},
	}
	drop := &cobra.Command{
		Use: "drop NAME", Short: "Forget a reader, with its dead letters", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				got, err := control.Answer(c.API().DropReaderWithResponse(ctx, a.workspace, args[0]))
				if err != nil {
					return err
				}
				return a.sayRemoved("the reader "+got.Removed+" is forgotten", got)
			})
		},
	}
	c.AddCommand(list, drop)
	return c
}

func (a *app) sayRemoved(what string, v api.Removal) error {
	a.did("%s", what)
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Removed}})
	}
	_, err := fmt.Fprintln(a.out, what)
	return err
}

func (a *app) printReaders(list []api.Reader) error {
	t := table{head: []string{"READER", "ACKED", "GIVEN", "TRIES", "DEAD", "SEEN", "STATE"}, empty: "no readers yet; whoever polls is one: " + a.line("message", "poll", "--as", "NAME")}
	for _, r := range list {
		state := "live"
		if !r.DroppedAt.IsZero() {
			state = "dropped"
		}
		t.names = append(t.names, r.Name)
		t.rows = append(t.rows, []string{r.Name, strconv.FormatInt(r.Acked, 10), strconv.FormatInt(r.Delivered, 10), strconv.Itoa(r.Tries), strconv.FormatInt(r.DeadLetters, 10), longAgo(r.SeenAt), state})
	}
	return printList(a, list, t)
}

func (a *app) messageDeadCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dead", Short: "See what readers could not use, and try it again",
		Long: `See what readers could not use, and try it again. A dead letter is kept for 30 days,
and the newest 1000 of a reader.`,
	}
	c.AddCommand(a.deadListCommand(),
		a.deadCommand("retry SEQ", "Give a dead letter to its reader once more", func(ctx context.Context, c *api.ClientWithResponses, reader string, seq int64) error {
			r, err := control.Answer(c.RetryDeadLetterWithResponse(ctx, a.workspace, reader, seq))
			if err != nil {
				return err
			}
			a.did("%s is given message %d again", reader, seq)
			if !a.forPeople() {
				return a.print(r, []any{r}, table{names: []string{r.Name}})
			}
			_, err = fmt.Fprintf(a.out, "%s is given message %d again\n", reader, seq)
			return err
		}),
		a.deadCommand("drop SEQ", "Forget a dead letter", func(ctx context.Context, c *api.ClientWithResponses, reader string, seq int64) error {
			got, err := control.Answer(c.DropDeadLetterWithResponse(ctx, a.workspace, reader, seq))
			if err != nil {
				return err
			}
			return a.sayRemoved(fmt.Sprintf("message %d is no dead letter of %s any more", seq, reader), got)
		}))
	return c
}

func (a *app) deadListCommand() *cobra.Command {
	p := api.ListDeadLettersParams{Limit: new(int)}
	c := &cobra.Command{
		Use: "list", Short: "List messages that readers could not use", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				got, err := control.Answer(c.API().ListDeadLettersWithResponse(ctx, a.workspace, &p))
				if err != nil {
					return err
				}
				return a.printDead(got.Items)
			})
		},
	}
	c.Flags().StringVar(&p.Reader, "reader", "", "of the reader `NAME` alone")
	c.Flags().IntVar(p.Limit, "limit", 100, "at most `N`, up to 1000")
	return c
}

func (a *app) printDead(list []api.DeadLetter) error {
	t := table{head: []string{"SEQ", "READER", "TRIES", "SINCE", "TYPE", "STATE", "WHY"}, wide: []string{"ID"}, empty: "no dead letters"}
	for _, d := range list {
		state := "dead"
		if d.Retry {
			state = "again"
		}
		t.names = append(t.names, strconv.FormatInt(d.Message.Seq, 10))
		t.rows = append(t.rows, []string{strconv.FormatInt(d.Message.Seq, 10), d.Reader, strconv.Itoa(d.Tries), commands.Lasting(max(time.Since(d.At), 0).Round(time.Second)), d.Message.Type, state, d.Why, d.Message.ID})
	}
	return printList(a, list, t)
}

// deadCommand is one that acts on a dead letter.
func (a *app) deadCommand(use, short string, act func(ctx context.Context, c *api.ClientWithResponses, reader string, seq int64) error) *cobra.Command {
	var reader string
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			seq, err := seqNamed(args[0])
			if err == nil && reader == "" {
				err = misuse("whose dead letter is it?").Hinting("give --reader NAME; see").Running("message", "dead", "list")
			}
			if err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error { return act(ctx, c.API(), reader, seq) })
		},
	}
	c.Flags().StringVar(&reader, "reader", "", "of the reader `NAME`")
	return c
}
