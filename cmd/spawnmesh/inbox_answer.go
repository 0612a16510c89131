package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// confirmTime is how long an answer waits for the word of the spoke.
const confirmTime = 5 * time.Second

func (a *app) answerCommand() *cobra.Command {
	var option, reason string
	c := &cobra.Command{
		Use: "answer ID [TEXT]", Short: "Answer a question of an agent", Args: cobra.RangeArgs(1, 2),
		Long: `Answer a question of an agent; inbox lists them. The first answer counts: where
somebody was faster the exit code is 4.

On a hub the answer is stored before this returns, and reaches a spoke that is away
when it is back. This waits up to 5s for the spoke to confirm it.`,
		Example: "  spawnmesh answer k7f3m2qp --option allow --reason 'checked the plan'\n  spawnmesh answer k7f3m2qp 'use the staging database'",
		RunE: func(c *cobra.Command, args []string) error {
			text := option
			switch {
			case len(args) == 2 && option != "":
				return misuse("both TEXT and --option are an answer").Hinting("give one of them")
			case len(args) == 2:
				text = args[1]
			case option == "":
				return misuse("no answer given").Hinting("give TEXT, or --option X; see").Running("inbox", "show", args[0])
			}
			return a.withReader(c.Context(), func(ctx context.Context, c *control.Client) error {
				return a.answer(ctx, c, args[0], api.NewAnswer{Answer: text, Reason: reason})
			})
		},
	}
	c.Flags().StringVar(&option, "option", "", "answer with the option `X`")
	c.Flags().StringVar(&reason, "reason", "", "record `WHY`")
	return c
}

func (a *app) answer(ctx context.Context, c *control.Client, id string, answer api.NewAnswer) error {
	q, err := control.Answer(c.API().AnswerQuestionWithResponse(ctx, id, answer))
	if err != nil {
		return err
	}
	a.did("question %s is answered; see: %s", q.ShortID, a.line("inbox", "show", q.ShortID))
	by := q.AnsweredBy
	if q.Sent != nil {
		by = q.Sent.By
	}
	for until := time.Now().Add(confirmTime); q.State == api.QuestionStateOpen && q.Sent != nil && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if q, err = control.Answer(c.API().GetQuestionWithResponse(ctx, q.ID)); err != nil {
			return err
		}
	}
	switch {
	case q.State == api.QuestionStateAnswered && q.AnsweredBy == by && q.Answer == answer.Answer:
	case q.State == api.QuestionStateOpen && q.Sent == nil:
		return commands.Refuse(commands.Conflict, "%s has refused the answer: %s", q.Spoke, q.Reason).Hinting("see").Running("inbox", "show", q.ShortID)
	case q.State != api.QuestionStateOpen:
		return commands.Refuse(commands.Conflict, "the answer came too late: question %s is %s", q.ShortID, q.State).Hinting("see").Running("inbox", "show", q.ShortID)
	}
	if !a.forPeople() {
		return a.print(q, []any{q}, table{names: []string{q.ID}})
	}
	if q.State == api.QuestionStateOpen {
		_, err = fmt.Fprintf(a.out, "the answer to question %s is sent; %s has not confirmed it yet\n", q.ShortID, q.Spoke)
		return err
	}
	_, err = fmt.Fprintf(a.out, "question %s is answered: %s\n", q.ShortID, printable(commands.OneLine(q.Answer)))
	return err
}
