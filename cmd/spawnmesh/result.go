package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store"
)

func (a *app) resultCommand() *cobra.Command {
	return &cobra.Command{
		Use: "result ID", Short: "Show how an agent ended, and what shows it", Args: cobra.ExactArgs(1),
		Long: `Show how an agent ended: its state, outcome, exit code and summary, what it has said
of that itself with its data and artifacts, and which signed messages say so: the
order and the result, each with its id, the digest of what was signed, and the key.
On a spoke its host asks the same way.

While the agent has not ended there is no result: exit code 12, and result_state in
JSON is not_ready.`,
		Example: "  spawnmesh result k7f3m2qp\n  spawnmesh result k7f3m2qp -o json",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withReader(c.Context(), func(ctx context.Context, c *control.Client) error {
				v, err := control.Answer(c.API().GetTaskResultWithResponse(ctx, args[0]))
				if err != nil {
					return err
				}
				return a.printResult(v)
			})
		},
	}
}

// printResult shows a result. What has none yet is an error.
func (a *app) printResult(v api.TaskResult) error {
	var err error
	switch {
	case !a.forPeople():
		err = a.print(v, []any{v}, table{names: []string{v.ID}})
	case v.ResultState == ready:
		err = a.align(resultPairs(v), 0)
	}
	if err == nil && v.ResultState != ready {
		err = commands.Refuse(commands.NoResult, "agent %s has no result yet: it is %s", v.ShortID, v.State).Hinting("to wait for its end").Running("logs", v.ShortID, "--follow")
	}
	return err
}

func resultPairs(v api.TaskResult) (list pairs) {
	list.add("id", v.ShortID+" ("+v.ID+")")
	list.add("state", string(v.State))
	list.add("reason", v.StateReason)
	list.add("outcome", v.Outcome)
	if v.ExitCode != nil {
		list.add("exit code", strconv.Itoa(*v.ExitCode))
	}
	list.add("summary", v.Summary)
	for _, r := range v.Refusals {
		list.add("refused", store.Refusal{Spoke: r.Spoke, Code: commands.Code(r.Code), Why: r.Why}.String())
		list.add("hint", saidBy(r.Spoke, r.Hint))
	}
	list.addWord(wordIn(v))
	list.addWork(v)
	list.add("ended", stamp(&v.CompletedAt, nil))
	list.add("retry of", shortOf(v.RetryOf))
	list.add("retried as", shortOf(v.RetriedAs))
	if p := v.Provenance; p.Conn != "" {
		list.add("hub", p.Hub)
		list.add("spoke", p.Spoke)
		list.add("attempt", strconv.Itoa(p.Attempt))
		list.addSigned("order", p.Order)
		list.addSigned("result", p.Result)
	}
	return list
}

// addWork adds what the agent has left in its working tree.
func (p *pairs) addWork(v api.TaskResult) {
	if b := v.Bundle; b.Tip != "" {
		said := fmt.Sprintf("%s behind %s, %d bytes", amount(int64(b.Commits), "commit"), begun(b.Base), b.Size)
		if b.Left {
			said += "; the last has what was not committed"
		}
		p.add("work", said)
	}
	p.add("kept", v.Kept)
}

// wordIn is what the agent itself has said in a result, and the state that it ended in.
func wordIn(v api.TaskResult) commands.Result {
	r := commands.Result{State: commands.State(v.State), Data: v.Data}
	if said := v.Reported; said.As != "" {
		r.Reported = &commands.Report{As: string(said.As), Text: said.Text, Cut: said.Cut, Final: said.Final}
	}
	for _, f := range v.Artifacts {
		r.Artifacts = append(r.Artifacts, commands.Artifact{Name: f.Name, Path: f.Path, Size: f.Size, SHA256: f.Sha256})
	}
	return r
}

// addSigned names a signed message, with the beginnings of its digest and its key: JSON has all of them.
func (p *pairs) addSigned(name string, m api.SignedMessage) {
	switch {
	case m.ID == "":
		p.add(name, "none is kept here")
		return
	case m.Key == "":
		p.add(name, m.Kind+" "+m.ID)
		p.add("", "sha256 "+begun(m.Sha256)+"; its signed bytes are gone")
		return
	}
	p.add(name, m.Kind+" "+m.ID)
	p.add("", "sha256 "+begun(m.Sha256)+", by "+begun(m.Key))
}

// begun is the beginning of a digest or a key.
func begun(s string) string {
	const most = 16
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
