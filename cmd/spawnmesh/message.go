package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

func (a *app) messageCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "message", Short: "Send messages, and read those of others",
		Long: `Send messages, and read those of others. All of a workspace are one log. A reader is
given what is for it or for all, in its order, until it acknowledges it: at least
once. A message changes no task.`,
	}
	a.inWorkspace(c)
	c.AddCommand(a.messageSendCommand(), a.messagePollCommand(), a.messageAckCommand(), a.messageListCommand(), a.messageShowCommand(), a.messageThreadCommand(),
		a.messageExportCommand(), a.messageDeadCommand(), a.messageReaderCommand())
	return c
}

// letter is a message that a person writes.
type letter struct {
	to, kind, correlation, reply, id string
	payload, file                    string
}

func (w *letter) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&w.to, "to", "", "for the reader `NAME` alone; without it for all")
	f.StringVar(&w.kind, "type", "", "it is a `TYPE`: see docs/operating.md; one of your own begins with x-")
	f.StringVar(&w.correlation, "correlation", "", "it belongs to the conversation `ID`; of one about a task, the id of the task")
	f.StringVar(&w.reply, "reply-to", "", "it answers the message `ID`")
	f.StringVar(&w.payload, "payload", "", "it says `JSON`")
	f.StringVar(&w.file, "file", "", "it says the JSON that is in `FILE`; - is standard input")
	f.StringVar(&w.id, "id", "", "store it once under the `UUID`, however often it is sent")
}

// said is the payload.
func (w *letter) said(ctx context.Context, a *app, most int) (string, error) {
	switch {
	case w.kind == "":
		return "", misuse("a message has a type").Hinting("give --type, such as task_progress, or x-note")
	case w.file != "" && w.payload != "":
		return "", misuse("both --payload and --file are what it says").Hinting("give one of them")
	case w.file == "":
		return w.payload, nil
	}
	return a.readNamed(ctx, source{what: "--file", path: w.file, input: w.file == "-", most: most})
}

// mostSaid is how many bytes of JSON the program sends as a blob.
const mostSaid = 16 << 20

func (a *app) messageSendCommand() *cobra.Command {
	var w letter
	var from string
	c := &cobra.Command{
		Use: "send", Short: "Send a message to a reader, or to all", Args: cobra.NoArgs,
		Long: `Send a message to a reader, or to all of the workspace. It is stored before this
returns. Payloads of more than 4096 bytes go as a blob: to a hub, in the workspace
main. With --id it may be sent again after an error: it is stored once.`,
		Example: `  spawnmesh message send --type x-note --to alice --payload '{"text":"look at this"}'
  spawnmesh message send --type task_done --correlation 42 --file report.json`,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := w.said(c.Context(), a, mostSaid)
			if err != nil {
				return err
			}
			return a.askingFirst(c.Context(), func(ctx context.Context, c *control.Client) error {
				return a.sendMessage(ctx, c, api.NewMessage{ID: w.id, From: from, To: w.to, Type: w.kind, CorrelationID: w.correlation, InReplyTo: w.reply}, text)
			})
		},
	}
	w.flags(c)
	c.Flags().StringVar(&from, "from", "", "speak as `NAME`; without it as who you are to the instance")
	return c
}

func (a *app) sendMessage(ctx context.Context, c *control.Client, m api.NewMessage, text string) error {
	if text != "" {
		small, err := compacted(text)
		if err != nil {
			return err
		}
		if m.Payload = small; len(small) > messages.MaxPayload {
			got, err := control.Answer(c.API().PutBlobWithBodyWithResponse(ctx, "application/octet-stream", bytes.NewReader(small)))
			if err != nil {
				return fmt.Errorf("sending a payload of more than %d bytes: %w", messages.MaxPayload, err)
			}
			m.Payload, m.PayloadRef = nil, got.Digest
		}
	}
	got, err := control.Answer(c.API().SendMessageWithResponse(ctx, a.workspace, m))
	if err != nil {
		return err
	}
	return a.saySent(got, "; see: "+a.line("message", "show", got.ID))
}

// compacted is JSON that a person has written, without its spaces.
func compacted(text string) ([]byte, error) {
	var small bytes.Buffer
	if err := json.Compact(&small, []byte(text)); err != nil {
		return nil, misuse("the payload is no JSON: %v", err).Hinting(`a text is JSON in quotes: --payload '"text"'`)
	}
	return small.Bytes(), nil
}

func (a *app) saySent(m api.Message, see string) error {
	a.did("message %d is stored%s", m.Seq, see)
	if !a.forPeople() {
		return a.print(m, []any{m}, table{names: []string{m.ID}})
	}
	again := ""
	if m.Known {
		again = " (it was stored before)"
	}
	_, err := fmt.Fprintf(a.out, "message %s is number %d%s\n", m.ID, m.Seq, again)
	return err
}

func (a *app) messagePollCommand() *cobra.Command {
	var reader string
	var wait days
	limit := 100
	c := &cobra.Command{
		Use: "poll", Short: "Read what a reader has not acknowledged", Args: cobra.NoArgs,
		Long: `Read what a reader has not acknowledged, the oldest first. It moves nothing: the same
comes again until message ack says that it is done. A reader that is new begins with
the oldest that is kept.

What is not acknowledged within a minute has failed once. What has failed comes again
alone, later each time: until then nothing comes. After five times it is a dead
letter of this reader, which goes on behind it.`,
		Example: "  spawnmesh message poll --as alice --wait 5m -o ndjson",
		RunE: func(c *cobra.Command, _ []string) error {
			if reader == "" {
				return misuse("who reads?").Hinting("give --as NAME")
			}
			return a.askingFirst(c.Context(), func(ctx context.Context, c *control.Client) error {
				p, err := pollFor(ctx, time.Duration(wait), func(wait time.Duration) (api.MessagePage, error) {
					return control.Answer(c.API().PollMessagesWithResponse(ctx, a.workspace, reader, &api.PollMessagesParams{Wait: wait.String(), Limit: &limit}))
				})
				if err != nil {
					return err
				}
				return a.printPolled(p, a.line("message", "ack", "SEQ", "--as", reader))
			})
		},
	}
	c.Flags().StringVar(&reader, "as", "", "read as `NAME`")
	c.Flags().Var(&wait, "wait", "wait for one for so long")
	c.Flags().IntVar(&limit, "limit", limit, "at most `N`, up to 100")
	return c
}

// pollFor polls until something has come, or the time is over.
func pollFor(ctx context.Context, wait time.Duration, poll func(time.Duration) (api.MessagePage, error)) (p api.MessagePage, err error) {
	for until := time.Now().Add(wait); ; {
		p, err = poll(min(max(time.Until(until), 0), longestPoll))
		if err != nil || ctx.Err() != nil || len(p.Items) > 0 || !p.DroppedAt.IsZero() || !time.Now().Before(until) {
			return p, cmp.Or(err, ctx.Err())
		}
	}
}

func (a *app) printPolled(p api.MessagePage, ack string) error {
	if !p.DroppedAt.IsZero() {
		fmt.Fprintf(a.err, "this reader was not seen for 30 days and dropped at %s: messages may be missing\n", p.DroppedAt.Local().Format(time.DateTime))
	}
	if err := a.printMessages(p.Items, "no messages"); err != nil {
		return err
	}
	if a.forPeople() && len(p.Items) > 0 {
		fmt.Fprintf(a.err, "\nwhen they are done: %s\n", ack)
	}
	return nil
}

func (a *app) messageAckCommand() *cobra.Command {
	var reader, failed string
	c := &cobra.Command{
		Use: "ack SEQ", Short: "Acknowledge all messages up to a number", Args: cobra.ExactArgs(1),
		Long: `Acknowledge all messages up to a number: the reader is not given them any more. It
never goes back, and not beyond what was given.

With --failed the first message that is not acknowledged has failed: it comes again
after 1, 2, 4 and 8 s, and after five times it is a dead letter. Of a dead letter
that is tried again this is about that one alone.`,
		Example: "  spawnmesh message ack 42 --as alice\n  spawnmesh message ack 43 --as alice --failed 'no such branch'",
		RunE: func(c *cobra.Command, args []string) error {
			ack, err := ackOf(args[0], failed)
			if err == nil && reader == "" {
				err = misuse("who reads?").Hinting("give --as NAME")
			}
			if err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				r, err := control.Answer(c.API().AckMessagesWithResponse(ctx, a.workspace, reader, ack))
				if err != nil {
					return err
				}
				return a.sayReader(r)
			})
		},
	}
	c.Flags().StringVar(&reader, "as", "", "the reader is `NAME`")
	c.Flags().StringVar(&failed, "failed", "", "it has failed, and `WHY`")
	return c
}

func ackOf(seq, failed string) (api.MessageAck, error) {
	n, err := seqNamed(seq)
	return api.MessageAck{Seq: n, Failed: failed}, err
}

// sayReader says how far a reader is.
func (a *app) sayReader(r api.Reader) error {
	a.did("%s has acknowledged all up to %d", r.Name, r.Acked)
	if !a.forPeople() {
		return a.print(r, []any{r}, table{names: []string{r.Name}})
	}
	text := fmt.Sprintf("%s has acknowledged all up to %d", r.Name, r.Acked)
	if r.Tries > 0 {
		text += fmt.Sprintf("; message %d has failed %d times", r.Head, r.Tries)
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

func seqNamed(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, misuse("%q is not the number of a message", commands.Clip(text)).Hinting("message poll and message list show it")
	}
	return n, nil
}
