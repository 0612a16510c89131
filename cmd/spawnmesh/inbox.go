package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) inboxCommand() *cobra.Command {
	limit := pageLength
	c := &cobra.Command{
		Use: "inbox", Short: "List the questions of agents that wait for an answer", Args: cobra.NoArgs,
		Long: `List the questions of agents that wait for an answer, newest first: on a hub those of
the agents that it ordered, on a spoke those of the agents that run on this host,
also while no spoke runs. The first 200 of each spoke come before those that one
asks beyond: none hides the questions of others. Of long words the first 200
characters are shown; inbox show has all. A question to which the hub has sent an
answer is listed until its spoke confirms it, with that answer (SENT).

What an agent asks is its own words: its host and its program may have chosen any.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 {
				return misuse("--limit is 1 or more")
			}
			return a.withReader(c.Context(), func(ctx context.Context, c *control.Client) error { return a.inbox(ctx, c, limit) })
		},
	}
	c.Flags().IntVar(&limit, "limit", limit, "the newest `N`")
	show := &cobra.Command{
		Use: "show ID", Short: "Show a question, and what became of it", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withReader(c.Context(), func(ctx context.Context, c *control.Client) error {
				q, err := control.Answer(c.API().GetQuestionWithResponse(ctx, args[0]))
				if err != nil {
					return err
				}
				return a.printQuestion(q)
			})
		},
	}
	c.AddCommand(show)
	return c
}

// inbox lists at most so many questions.
func (a *app) inbox(ctx context.Context, c *control.Client, limit int) error {
	list, more, err := paged(limit, false, func(cursor string, most int) (control.Items[api.Question], error) {
		page, err := control.Answer(c.API().ListQuestionsWithResponse(ctx, &api.ListQuestionsParams{Cursor: cursor, Limit: &most}))
		return control.Items[api.Question]{Items: page.Items, Next: page.Next}, err
	})
	if err == nil {
		err = a.printInbox(list)
	}
	a.sayMore(err == nil && more, "questions", "--limit N")
	return err
}

func (a *app) printInbox(list []api.Question) error {
	t := table{head: []string{"ID", "AGENT", "ON", "AGE", "DEADLINE"}, wide: []string{"OPTIONS", "DEFAULT"}, yields: "QUESTION", empty: "no agent waits for an answer"}
	sent := slices.ContainsFunc(list, func(q api.Question) bool { return q.Sent != nil })
	if sent { // what is answered, and not confirmed yet
		t.head = append(t.head, "SENT")
	}
	t.head = append(t.head, "QUESTION")
	for _, q := range list {
		row := []string{q.ShortID, commands.ShortID(q.Task), peerOf(q), waitsSince(q.AskedAt), untilText(q.Deadline)}
		if sent {
			row = append(row, cmp.Or(shorten(sentWords(q), 40), "-"))
		}
		t.names = append(t.names, q.ID)
		t.rows = append(t.rows, append(row, commands.OneLine(q.Text), strings.Join(q.Options, ","), q.Default))
	}
	return printList(a, list, t)
}

// sentWords are the answer that a hub has sent to a question, and who gave it.
func sentWords(q api.Question) string {
	if q.Sent == nil {
		return ""
	}
	return q.Sent.Answer + " by " + q.Sent.By
}

// answerLine is how to answer a question, with the first of its options where it has some.
func (a *app) answerLine(q api.Question) string {
	if len(q.Options) == 0 {
		return a.line("answer", q.ShortID, "TEXT")
	}
	var lines []string
	for _, option := range q.Options[:min(2, len(q.Options))] {
		lines = append(lines, a.line("answer", q.ShortID, "--option", option))
	}
	return strings.Join(lines, "\n  ") // each can be pasted
}

// peerOf names where the agent of a question runs, or who ordered it.
func peerOf(q api.Question) string {
	if q.Spoke != "" {
		return q.Spoke
	}
	return "here"
}

func waitsSince(at time.Time) string {
	return commands.Lasting(max(time.Since(at), 0).Round(time.Second))
}

// untilText says in how long something is due.
func untilText(at time.Time) string {
	left := time.Until(at).Round(time.Second)
	if left <= 0 {
		return "passed"
	}
	return "in " + commands.Lasting(left)
}

func (a *app) printQuestion(q api.Question) error {
	if !a.forPeople() {
		return a.print(q, []any{q}, table{names: []string{q.ID}})
	}
	var list pairs
	list.add("question", q.ShortID+" ("+q.ID+")")
	list.add("state", string(q.State))
	list.add("agent", strings.TrimSpace(commands.ShortID(q.Task)+" "+q.Title))
	list.add("spoke", q.Spoke)
	list.add("hub", q.Hub)
	list.add("asked", stamp(&q.AskedAt, nil)+fmt.Sprintf(", by attempt %d", q.Attempt))
	list.add("deadline", stamp(&q.Deadline, nil))
	list.add("options", strings.Join(q.Options, ", "))
	list.add("default", q.Default)
	list.add("text", q.Text)
	list.add("answer", q.Answer)
	list.add("answered", answeredWords(q))
	list.add("reason", q.Reason)
	list.add("differs", q.Differs)
	if q.Sent != nil && q.State == api.QuestionStateOpen {
		list.add("sent", fmt.Sprintf("%s; %s has not confirmed it yet", sentWords(q), q.Spoke))
	}
	if err := a.align(list, 0); err != nil {
		return err
	}
	if q.Data != "" {
		fmt.Fprintln(a.out, "\ndata:")
		for line := range strings.Lines(printable(q.Data)) {
			fmt.Fprintf(a.out, "  %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	if q.State == api.QuestionStateOpen && q.Sent == nil {
		fmt.Fprintf(a.err, "\nanswer it: %s\n", a.answerLine(q))
	}
	return nil
}

func answeredWords(q api.Question) string {
	switch {
	case q.AnsweredAt.IsZero():
		return ""
	case q.AnsweredBy == "":
		return stamp(&q.AnsweredAt, nil) + " by nobody"
	}
	return stamp(&q.AnsweredAt, nil) + " by " + q.AnsweredBy
}

// progressWords says how far an agent has come, as it said itself, and when that was.
func progressWords(p *api.TaskProgress) string {
	if p == nil {
		return ""
	}
	return howFar(p) + ", " + longAgo(p.At)
}

func howFar(p *api.TaskProgress) string {
	var words []string
	switch {
	case p.Current != nil && p.Total != nil:
		words = append(words, fmt.Sprintf("%d of %d", *p.Current, *p.Total))
	case p.Current != nil:
		words = append(words, fmt.Sprint(*p.Current))
	case p.Total != nil:
		words = append(words, fmt.Sprintf("of %d", *p.Total))
	}
	if p.Unit != "" {
		words = append(words, p.Unit)
	}
	if p.Percent != nil {
		words = append(words, fmt.Sprintf("(%d%%)", *p.Percent))
	}
	said := strings.Join(words, " ")
	if p.Step != "" {
		said = strings.TrimPrefix(said+": "+p.Step, ": ")
	}
	return said
}
