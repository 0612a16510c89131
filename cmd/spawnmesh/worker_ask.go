package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/door"
	"github.com/spawnmesh/spawnmesh/store"
)

func (w *worker) askCommand() *cobra.Command {
	var q door.Ask
	var file string
	deadline := days(commands.DefaultQuestionFor)
	c := &cobra.Command{
		Use: "ask QUESTION", Short: "Ask a person, and wait for the answer", Args: cobra.ExactArgs(1),
		Long: `Ask a person, and wait for the answer, which is printed. People see the question in
the inbox of the hub that ordered the agent, and of this host; the first answer
counts. Meanwhile the agent is awaiting_input.

With --option only these are answers. Where nobody answers before the deadline, the
answer is --default, else deny where that is an option; without either the exit code
is 11.

A question with the same --key is the same question: an agent that was interrupted
asks once more and gets the answer, be it given meanwhile. After an attempt that has
failed people are asked again. What it needs no answer to any more it withdraws.`,
		Example: "  spawnmesh worker ask 'deploy now?' --key deploy --option allow --option deny",
		RunE: func(c *cobra.Command, args []string) (err error) {
			q.Text, q.DeadlineMS = args[0], time.Duration(deadline).Milliseconds()
			if q.Key == "" {
				q.Key = uuid.NewString()
			}
			if file != "" {
				if q.Data, err = w.a.readNamed(c.Context(), source{what: "--data", path: file, input: file == "-", most: commands.MaxQuestionData}); err != nil {
					return err
				}
			}
			asked := commands.Question{Text: q.Text, Options: q.Options, Default: q.Default, Data: q.Data}
			if err := asked.CheckText(); err != nil {
				return err
			}
			return w.await(c.Context(), q)
		},
	}
	c.Flags().StringVar(&q.Key, "key", "", "the agent's own `NAME` of the question")
	c.Flags().StringArrayVar(&q.Options, "option", nil, "`TEXT` may be the answer (repeatable)")
	c.Flags().StringVar(&q.Default, "default", "", "the `ANSWER` where nobody gives one in time")
	c.Flags().Var(&deadline, "deadline", "wait for so long, at most 30d")
	c.Flags().StringVar(&file, "data", "", "show what is in `FILE` with the question; - is standard input")
	return c
}

// await asks, and prints the answer.
func (w *worker) await(ctx context.Context, ask door.Ask) error {
	var q store.Question
	if err := w.ask(ctx, http.MethodPost, "/v1/questions", ask, &q); err != nil {
		return err
	}
	for q.State == commands.QuestionOpen {
		err := w.ask(ctx, http.MethodGet, "/v1/questions/"+q.ID+"?wait=30s", nil, &q)
		if commands.CodeOf(err) == commands.NotFound { // the spoke was restored from a backup, which does not have it
			err = w.ask(ctx, http.MethodPost, "/v1/questions", ask, &q)
		}
		if err != nil {
			return err
		}
	}
	switch q.State {
	case commands.QuestionAnswered, commands.QuestionDefaulted:
	default:
		return commands.Refuse(commands.NoAnswer, "nobody has answered question %s: it is %s", q.ShortID, q.State).Hinting("do what is safe without an answer, or end")
	}
	if !w.a.forPeople() {
		return w.a.print(q, []any{q}, table{names: []string{q.Answer}})
	}
	_, err := fmt.Fprintln(w.a.out, q.Answer)
	return err
}

func (w *worker) withdrawCommand() *cobra.Command {
	return &cobra.Command{
		Use: "withdraw KEY", Short: "Withdraw a question that needs no answer any more", Args: cobra.ExactArgs(1),
		Long: `Withdraw the question that was asked with --key KEY: people are not asked any more.
The agent goes on, and may ask anew with another key. Where the question has its
answer, or nobody has given one in time, the exit code is 4.`,
		Example: "  spawnmesh worker withdraw deploy",
		RunE: func(c *cobra.Command, args []string) error {
			var v door.Attempt
			if err := w.ask(c.Context(), http.MethodGet, "/v1/attempt", nil, &v); err != nil {
				return err
			}
			for _, q := range v.Questions {
				if q.Key == args[0] {
					return w.ask(c.Context(), http.MethodDelete, "/v1/questions/"+q.ID, nil, nil)
				}
			}
			return commands.Refuse(commands.NotFound, "this agent has asked nothing with the key %q", commands.Clip(args[0])).Hinting("see").Running("worker", "show")
		},
	}
}
