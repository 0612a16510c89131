package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
)

// An agentView is an agent as the hub knows it and, when it was asked, as its
// spoke answered; or, with Hub, as the host knows it where it runs.
type agentView struct {
	hub.AgentView
	Hub string `json:"hub,omitempty"` // who ordered it
	Dir string `json:"dir,omitempty"` // of its attempts
	// Session is what its runtime calls a conversation, and how that stands: of a host.
	Session      string            `json:"session,omitempty"`
	SessionState string            `json:"session_state,omitempty"`
	Asked        *api.TaskStanding `json:"asked,omitempty"`
	// Progress is what the agent has said of its progress last; nil = nothing, or it does not run.
	Progress  *api.TaskProgress   `json:"progress,omitempty"`
	LastError *commands.LastError `json:"last_error,omitempty"` // see [store.Mirror.Failure]
	// KillIncomplete are processes that do not end although they were killed.
	KillIncomplete []supervisor.Survivor `json:"kill_incomplete,omitempty"`

	RefusedReports []store.RefusedReport `json:"refused_reports,omitempty"` // by its hub
}

func (a *app) statusCommand() *cobra.Command {
	var ask bool
	c := &cobra.Command{
		Use: "status ID", Short: "Show how an agent stands", Args: cobra.ExactArgs(1),
		Long: `Show how an agent stands: what its spoke has said of it, receipt by receipt. In the
data directory of that spoke: what its host knows of it, also while no spoke runs.

ID is the short id as a list shows it, or four or more characters that no other
begins with; the whole id; or on a hub a title that no other agent has. With --ask
the spoke is asked now, and its signed answer is shown too.

Below are the last lines of its output, as far as it is here: ten, or with -o wide
all that a result has. logs ID shows all of it.`,
		RunE: func(c *cobra.Command, args []string) error { return a.status(c.Context(), args[0], ask) },
	}
	c.Flags().BoolVar(&ask, "ask", false, "ask the spoke now")
	return c
}

func (a *app) status(ctx context.Context, id string, ask bool) error {
	return a.withReader(ctx, func(ctx context.Context, c *control.Client) error { return a.statusOf(ctx, c, id, ask) })
}

// askSpoke asks the spoke of an agent how it stands, and says whom it waits for.
func (a *app) askSpoke(ctx context.Context, c *control.Client, id string) (*api.TaskStanding, error) {
	v, err := agentNamed(ctx, c, id)
	if err != nil {
		return nil, err
	}
	l := a.lasting("asking " + cmp.Or(v.Spoke, "the spoke") + ", at most 10s")
	defer l.done()
	return control.Read[*api.TaskStanding](c.API().AskTask(ctx, id))
}

// agentNamed asks for an agent as it is now.
func agentNamed(ctx context.Context, c *control.Client, id string) (agentView, error) {
	return control.Read[agentView](c.API().GetTask(ctx, id, nil))
}

func (a *app) statusOf(ctx context.Context, c *control.Client, id string, ask bool) error {
	var asked *api.TaskStanding
	if ask {
		var err error
		if asked, err = a.askSpoke(ctx, c, id); err != nil {
			return err
		}
	}
	v, err := control.Read[agentView](c.API().GetTask(ctx, id, &api.GetTaskParams{Receipts: true}))
	if err != nil {
		return err
	}
	v.Asked = asked
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Task}})
	}
	if v.Asked != nil {
		fmt.Fprintf(a.err, "%s says now: %s, attempt %d\n\n", v.Spoke, v.Asked.State, v.Asked.Attempt)
	}
	if err := a.printAgent(v, a.linesShown()); err != nil {
		return err
	}
	if err := a.printLastLines(ctx, c, v); err != nil || v.State.Terminal() {
		return err
	}
	if v.Hub != "" && v.State != commands.AwaitingInput {
		return a.statusOnHost(ctx, v)
	}
	said, err := a.openOnHub(ctx, c, v.AgentView)
	if err != nil {
		return err
	}
	if !strings.Contains(said, a.self()+" ") {
		said += "; see: " + a.line("connections", "show", v.Spoke)
	}
	fmt.Fprintf(a.err, "\n%s\n", printable(said))
	return nil
}

// pairs are names and values, one pair per line.
type pairs [][]string

// add leaves out what has no value.
func (p *pairs) add(name, value string) {
	if value != "" {
		*p = append(*p, []string{name, value})
	}
}

// addWord adds what an agent has said of its own end, and where its supervisor saw another one.
func (p *pairs) addWord(r commands.Result) {
	if said := r.Reported; said != nil {
		p.add("agent says", strings.TrimSuffix(said.As+": "+said.Text, ": "))
		p.add("but", r.Contradicts())
		if said.Cut {
			p.add("left out", "data and artifacts of the agent: with its output they did not fit into one message")
		}
	}
	for _, f := range r.Artifacts {
		p.add("artifact", fmt.Sprintf("%s: %s, %d bytes, sha256 %s", f.Name, f.Path, f.Size, f.SHA256))
	}
	p.add("data", dataGlance(r))
}

// dataGlance is the beginning of the data that an agent has left, which may be long.
func dataGlance(r commands.Result) string {
	text := []rune(inLine(r.Data))
	if len(text) <= mostData {
		return string(text)
	}
	return fmt.Sprintf("%s… (%d bytes; all of it with -o json)", string(text[:mostData]), len(r.Data))
}

// mostData is how many characters of the data of an agent a person is shown.
const mostData = 200

// printAgent shows one agent, and of each stream in its result the last lines; below 0: all that is there.
func (a *app) printAgent(v agentView, lines int) error {
	if !a.forPeople() {
		return a.print(v, []any{v}, table{names: []string{v.Task}})
	}
	r := resultOf(v.AgentView)
	list := agentPairs(v)
	if b := r.Exit.Breach; b != nil {
		list.add("ended by", fmt.Sprintf("%s: %d of %d %s", b.Limit, b.Measured, b.Allowed, b.Unit))
	}
	list.add("limits", limitsIn(r.Exit))
	list.addWord(r)
	for _, p := range r.Reaped {
		list.add("reaped", fmt.Sprintf("%d %s", p.Pid, p.Command))
	}
	for _, p := range r.Survivors {
		list.add("survives", fmt.Sprintf("%d %s", p.Pid, p.Command))
	}
	for _, rc := range v.Receipts {
		late := ""
		if rc.Late {
			late = "after the end"
		}
		list.add("receipt", strings.TrimRight(fmt.Sprintf("%-15s seq %-6d %s %s %s", rc.Kind, rc.Seq, rc.At.Local().Format("15:04:05.000"), rc.Code, late), " "))
	}
	for _, f := range v.RefusedReports {
		list.add("report refused", fmt.Sprintf("by %s: %s seq %d (%s); it had no effect there", f.Hub, f.Kind, f.Seq, f.Code))
	}
	if err := a.align(list, 0); err != nil {
		return err
	}
	a.printEnd("stdout", r.Stdout, lines)
	a.printEnd("stderr", r.Stderr, lines)
	return nil
}

// saidBy marks the words of a peer as its own: it may have chosen any.
func saidBy(peer, words string) string {
	if words == "" {
		return ""
	}
	return peer + " says: " + words
}

func agentPairs(v agentView) pairs {
	var list pairs
	list.add("id", commands.ShortID(v.Task)+" ("+v.Task+")")
	list.add("title", v.Title)
	list.add("spoke", inConnection(v.Spoke, v.ConnState))
	list.add("hub", inConnection(v.Hub, v.ConnState))
	list.add("command", commandLine(v.Spec))
	list.add("labels", v.Labels.Text())
	list = append(list, askedOf(v.Spec)...)
	list.add("state", v.InWords())
	var refused commands.RefusedBody
	if v.Refusal != nil && json.Unmarshal(v.Refusal, &refused) == nil {
		list.add("hint", saidBy(v.Spoke, refused.Hint))
	}
	if !v.Refused() { // else the state names them
		for _, r := range v.Refusals {
			list.add("refused", r.String())
		}
	}
	list.add("verdict", verdictWords(v))
	list.add("progress", progressWords(v.Progress))
	list.add("takes", takes(v))
	list.add("estimate", estimateOf(v))
	if v.Session != "" {
		list.add("session", v.Session+" ("+v.SessionState+")")
	}
	list.add("policy", v.Policy) // of the spoke, the version that decided last
	list.add("isolation", v.Isolation)
	if v.ExitCode != nil {
		list.add("exit code", strconv.Itoa(*v.ExitCode))
	}
	for _, line := range attemptsOf(v) {
		list.add("attempt", line)
	}
	if !v.State.Terminal() { // else its sentence says it
		list.add("last error", errorWords(v.LastError))
	}
	if r := retriesOf(v.Spec); r != "" {
		list.add("retries", r)
	}
	list.add("ordered", stamp(&v.CreatedAt, nil)+" by "+v.CreatedBy)
	list.add("schedule", v.Schedule)
	list.add("retry of", shortOf(v.RetryOf))
	list.add("retried as", shortOf(v.RetriedAs))
	list.add("accepted", happened(v.AcceptedAt, v.AcceptedTold, v.CreatedAt))
	list.add("started", happened(v.StartedAt, v.StartedTold, v.CreatedAt))
	list.add(endedAs(v), happened(v.EndedAt, v.EndedTold, v.CreatedAt))
	list.add("archived", stamp(v.ArchivedAt, nil))
	if v.StartedAt == nil && !v.State.Terminal() {
		list.add("expires", v.ExpiresAt.Local().Format(time.DateTime)+" (not started later than this)")
	}
	list = append(list, v.ends()...)
	list.add("pause", v.PauseSaid())
	for _, p := range v.KillIncomplete {
		list.add("kill incomplete", fmt.Sprintf("process %d (%s) is in state %s at %q and does not end; it is killed again every 10 s", p.Pid, p.Command, p.State, p.Wchan))
	}
	list.add("directory", v.Dir)
	return list
}

// verdictWords say what an agent is at, and what shows it.
func verdictWords(v agentView) string {
	if v.Verdict == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", v.Verdict.Word, v.Verdict.Evidence)
}

// takes is what the processes of an agent take.
func takes(v agentView) string {
	if v.Memory == 0 && v.CPUMS == 0 {
		return ""
	}
	return fmt.Sprintf("%s of memory, %s of processor time so far", mebibytes(v.Memory), time.Duration(v.CPUMS)*time.Millisecond)
}

// estimateOf is how long an agent is thought to take, and whether it takes much longer.
func estimateOf(v agentView) string {
	var s commands.Spawn
	_ = json.Unmarshal(v.Spec, &s) // our own hub wrote it
	switch {
	case s.EstimateMS == 0:
		return ""
	case v.Overrun:
		return commands.Lasting(s.Estimate()) + "; it takes much longer, and is ended where it tells no progress"
	}
	return commands.Lasting(s.Estimate())
}

// askedOf says what an order demands of its spoke, and which variables it sets: names only.
func askedOf(spec json.RawMessage) (list pairs) {
	var s commands.Spawn
	_ = json.Unmarshal(spec, &s) // our own hub wrote it
	var demands []string
	if level, ok := commands.IsolationDemanded(s.Capabilities); ok && level != commands.IsolationNone {
		demands = append(demands, "isolation "+level)
	}
	for _, c := range s.Capabilities {
		if _, ok := commands.IsolationBy(c); !ok && c != commands.InlineFiles { // what it brings is said below
			demands = append(demands, "capability "+c)
		}
	}
	named := map[string][]string{}
	for _, v := range s.Env {
		named[v.As] = append(named[v.As], v.Name)
	}
	list.add("runs in", s.Dir)
	list.add("demands", strings.Join(demands, ", "))
	list.add("variables", strings.Join(named[""], ", "))
	list.add("secrets", strings.Join(named[commands.EnvSecret], ", "))
	list.add("secret files", strings.Join(named[commands.EnvFile], ", "))
	list.add("brings", strings.Join(broughtBy(s), ", "))
	return list
}

// broughtBy names the files of an order, and its standard input.
func broughtBy(s commands.Spawn) (list []string) {
	for _, f := range s.Files {
		list = append(list, f.Path)
	}
	if s.Stdin {
		list = append(list, "standard input")
	}
	return list
}

// limitsIn says what the limits of an agent have done. Which of them the kernel does not hold is
// the same for all agents of a host, and doctor says it there: here it is only said of an agent
// that a limit has ended.
func limitsIn(exit commands.Exit) string {
	text, only := strings.CutPrefix(exit.Limits, "limits ")
	if only && exit.Breach == nil {
		return ""
	}
	return text
}

// ends are the orders to end an agent.
func (v agentView) ends() (list pairs) {
	if k := store.ReadKill(v.Kill); k != nil {
		said := orderedEnd(k)
		if v.ProtocolCancel == "unavailable" && !v.State.Terminal() {
			said += " (its spoke has not taken it yet)"
		}
		list.add(k.Word(), said)
	}
	if k := store.ReadKill(v.RefusedKill); k != nil {
		list.add(k.Word(), orderedEnd(k)+"; "+v.NotKilled())
	}
	return list
}

// orderedEnd says who ordered the end of an agent, and why.
func orderedEnd(k *store.OrderedKill) string {
	by := k.By
	if k.At != nil { // the host's own kills have none
		by += k.At.Local().Format(" at " + time.DateTime)
	}
	return fmt.Sprintf("ordered by %s: %s", by, k.Reason)
}

// shortOf is the short id of a task; "" of none.
func shortOf(task string) string {
	if task == "" {
		return ""
	}
	return commands.ShortID(task)
}

// inConnection names a peer, and says when nothing more is heard of it.
func inConnection(name string, state store.ConnState) string {
	if name == "" || state == store.Active {
		return name
	}
	return fmt.Sprintf("%s (the connection is %s)", name, state)
}

// resultOf returns an agent's result; it is empty when there is none.
func resultOf(v hub.AgentView) commands.Result {
	r, _ := commands.ReadResult(v.Result)
	return r
}

// retriesOf says how often an agent may run again.
func retriesOf(spec json.RawMessage) string {
	var s commands.Spawn
	_ = json.Unmarshal(spec, &s) // our own hub wrote it
	switch {
	case s.OnLoss == commands.LossReruns:
		return fmt.Sprintf("at most %d, after a loss at most %d", s.MaxRetries, s.Losses()) + backoffWords(s.BackoffMS)
	case s.MaxRetries > 0:
		return fmt.Sprintf("at most %d", s.MaxRetries) + backoffWords(s.BackoffMS)
	}
	return ""
}

// stamp is a time for people, with how long after the order it was.
func stamp(t, from *time.Time) string {
	if t == nil {
		return ""
	}
	text := t.Local().Format("2006-01-02 15:04:05.000")
	if from != nil {
		text += fmt.Sprintf("  +%s", t.Sub(*from).Round(time.Millisecond))
	}
	return text
}

// happened shows when something happened, and when the hub heard of it if the
// clock of the spoke says that this was at another time; told is nil where no
// other clock is asked.
func happened(at, told *time.Time, ordered time.Time) string {
	if told == nil || told.Sub(*at).Abs() < 2*time.Second {
		return stamp(at, &ordered)
	}
	return stamp(at, nil) + " by its spoke's clock, told " + stamp(told, &ordered)
}

// commandLine writes what an agent runs as a person would type it.
func commandLine(spec json.RawMessage) string {
	var s commands.Spawn
	if json.Unmarshal(spec, &s) != nil || len(s.Argv) == 0 {
		return s.Runtime
	}
	return commands.ShellLine(s.Argv)
}
