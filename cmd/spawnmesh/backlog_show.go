package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) backlogShowCommand() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use: "show [ID]", Short: "Show one task in full", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := aTask(c, id, args)
			if err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				t, err := control.Answer(c.API().GetBacklogTaskWithResponse(ctx, a.workspace, ref))
				if err != nil {
					return err
				}
				keeps, err := a.keptBy(ctx, c, t)
				if err != nil {
					return err
				}
				return a.printTask(taskFrom(t), keeps)
			})
		},
	}
	c.Flags().StringVar(&id, "id", "", "the task `ID`; the same as without --id")
	return c
}

// keptBy says for people who has paused or blocked t, and why, or that its claim has run out; "" of another task.
func (a *app) keptBy(ctx context.Context, c *control.Client, t api.BacklogTask) (string, error) {
	s := commands.State(t.State)
	kept := s == commands.Paused || s == commands.Blocked
	if !a.forPeople() || !kept && t.ClaimOwner == "" {
		return "", nil
	}
	w, err := control.Answer(c.API().ExplainBacklogTaskWithResponse(ctx, a.workspace, t.ID))
	for _, r := range w.Reasons {
		if kept || string(r.Code) == string(commands.CauseLease) && r.Until == nil { // a claim that holds has an end
			return r.Text, err
		}
	}
	return "", err
}

// printTask shows a task. keeps says in words what keeps it.
func (a *app) printTask(t backlog.Task, keeps string) error {
	if !a.forPeople() {
		return a.print(t, []any{t}, table{names: []string{t.Ref()}})
	}
	var list pairs
	list.add("key", t.Key)
	list.add("id", t.ID)
	list.add("title", t.Title)
	list.add("status", string(t.Status)+stateIn(t))
	list.add("why", keeps)
	list.add("waits for", waitsFor(t))
	list.add("depends on", strings.Join(t.DependsOn, ", "))
	list.add("blocks", blocksOf(t))
	list.add("claimed by", t.Owner)
	list.add("claimed", clock(t.ClaimedAt))
	list.add("until", clock(t.LeaseUntil))
	list.add("claims", claimsOf(t))
	list.add("last error", errorWords(t.LastError))
	list.add("priority", strconv.Itoa(t.Priority))
	list.add("phase", t.Phase)
	list.add("lane", t.Lane)
	list.add("needs", strings.Join(t.Capabilities, ", "))
	list.add("account", t.Account)
	list.add("estimate", textOf(t.Estimate))
	list.add("created", clock(&t.CreatedAt)+" by "+t.CreatedBy)
	list.add("ended", clock(t.EndedAt))
	list.add("archived", clock(t.ArchivedAt))
	for _, c := range criteria(t.Acceptance) {
		list.add("acceptance", c)
	}
	list.add("result", string(t.Result))
	if err := a.align(list, 0); err != nil || t.Body == "" {
		return err
	}
	_, err := fmt.Fprintf(a.out, "\n%s\n", printable(t.Body))
	return err
}

// blocksOf names those that wait for t, and counts the rest.
func blocksOf(t backlog.Task) string {
	text := strings.Join(t.Blocks, ", ")
	if more := t.Dependents - len(t.Blocks); more > 0 {
		if t.Dependents >= backlog.MaxDependencies {
			return text + fmt.Sprintf(", and at least %d more", more)
		}
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// claimsOf counts claims, and retries where there may be some.
func claimsOf(t backlog.Task) string {
	text := strconv.Itoa(t.Attempts)
	if t.MaxRetries > 0 {
		text += fmt.Sprintf(", %d of %d retries spent", t.Retries, t.MaxRetries) + backoffWords(t.BackoffMS)
	}
	return text
}

// backoffWords say how long a retry waits, where its task says so.
func backoffWords(ms int64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprintf(", back-off from %s", commands.Lasting(time.Duration(ms)*time.Millisecond))
}

// errorWords say in one line how the last attempt failed.
func errorWords(e *commands.LastError) string {
	if e == nil {
		return ""
	}
	text := fmt.Sprintf("%s, try %d at %s", e.Code, e.Attempt, clock(&e.At))
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// stateIn adds the exact state where the status does not say it.
func stateIn(t backlog.Task) string {
	text := string(t.State)
	if t.Reason != "" {
		text += ", " + string(t.Reason)
	}
	if text == string(t.Status) || t.State == commands.Queued && t.Reason == "" {
		return ""
	}
	return " (" + text + ")"
}

// criteria lists what acceptance asks for, one line each.
func criteria(raw json.RawMessage) []string {
	var list []string
	if len(raw) > 0 && json.Unmarshal(raw, &list) != nil {
		list = []string{string(raw)}
	}
	return list
}

func (a *app) backlogStatsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stats", Short: "Count tasks by status, and see what is late", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			// Not swept: an expired claim is counted before somebody puts it back.
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				s, err := control.Answer(c.API().GetBacklogStatsWithResponse(ctx, a.workspace))
				if err != nil {
					return err
				}
				return a.printStats(statsFrom(s))
			})
		},
	}
}

func (a *app) printStats(s backlog.Stats) error {
	if !a.forPeople() {
		return a.print(s, []any{s}, table{})
	}
	var list pairs
	for _, status := range []backlog.BoardStatus{backlog.BoardReady, backlog.BoardClaimed, backlog.BoardBlocked, backlog.BoardDone} {
		list.add(string(status), strconv.FormatInt(s.Status[status], 10))
	}
	for _, state := range sortedKeys(s.States) {
		if state.Terminal() && state != commands.Completed {
			list.add(string(state), strconv.FormatInt(s.States[state], 10))
		}
	}
	if a.output == "wide" {
		for _, state := range sortedKeys(s.States) {
			list.add("state "+string(state), strconv.FormatInt(s.States[state], 10))
		}
	}
	list.add("claimable now", strconv.FormatInt(s.Claimable, 10))
	if s.OldestReady != nil {
		list.add("oldest of them", clock(s.OldestReady)+" ("+ago(time.Now().Add(-s.Now.Sub(*s.OldestReady)))+")")
	}
	list.add("expired claims", strconv.FormatInt(s.ExpiredClaims, 10))
	return a.align(list, 0)
}
