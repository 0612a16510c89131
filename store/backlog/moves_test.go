package backlog_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A walker leads one task through public acts.
type walker struct {
	scene
	task     string
	fence    backlog.Fence
	question string
}

type step func(w *walker) error

// The last step of each makes the move, "from>to trigger".
var reached = map[string][]step{
	"queued>claimed claim":                   {card, claim},
	"claimed>running start":                  {agent(1), claim, start},
	"claimed>queued loss":                    {card, claim, lose},
	"running>queued loss":                    {agent(1), claim, start, end(commands.AttemptFailed)},
	"claimed>unavailable no_start":           {agent(1), claim, end(commands.CouldNotStart)},
	"queued>unavailable unavailable":         {agent(1), recallAs(commands.Unavailable)},
	"queued>blocked block":                   {card, block},
	"claimed>blocked block":                  {card, claim, block},
	"blocked>queued unblock":                 {card, block, by((*backlog.Workspace).Unblock)},
	"claimed>completed done":                 {card, claim, done},
	"running>completed done":                 {agent(1), claim, start, end(commands.Succeeded)},
	"queued>completed operator":              {card, accept},
	"claimed>completed operator":             {card, claim, accept},
	"blocked>completed operator":             {card, block, accept},
	"claimed>queued release":                 {card, claim, by((*backlog.Workspace).Release)},
	"running>queued release":                 {agent(1), claim, start, end(commands.Parked)},
	"queued>failed failure":                  {card, fail},
	"claimed>failed failure":                 {card, claim, fail},
	"running>failed failure":                 {agent(0), claim, start, end(commands.AttemptFailed)},
	"blocked>failed failure":                 {card, block, fail},
	"queued>cancelled cancel":                {card, cancel},
	"blocked>cancelled cancel":               {card, block, cancel},
	"claimed>cancelled cancelled":            {card, claim, cancel},
	"running>cancelled cancelled":            {agent(1), claim, start, end(commands.AttemptKilled)},
	"running>awaiting_input question":        {agent(1), claim, start, asking},
	"awaiting_input>running answer":          {agent(1), claim, start, asking, answer},
	"awaiting_input>queued answer":           {agent(1), claim, start, asking, end(commands.Interrupted), answer},
	"awaiting_input>completed operator":      {agent(1), claim, start, asking, end(commands.Interrupted), accept},
	"awaiting_input>failed failure":          {agent(0), claim, start, asking, end(commands.Interrupted)},
	"awaiting_input>blocked block":           {agent(1), claim, start, asking, end(commands.Interrupted), block},
	"awaiting_input>cancelled cancel":        {agent(1), claim, start, asking, end(commands.Interrupted), cancel},
	"awaiting_input>cancelled cancelled":     {agent(1), claim, start, asking, end(commands.AttemptKilled)},
	"awaiting_input>expired expiry":          {agent(1), claim, start, asking, end(commands.TimedOut)},
	"queued>expired expiry":                  {agent(1), late},
	"claimed>expired expiry":                 {agent(1), claim, end(commands.TimedOut)},
	"running>expired expiry":                 {agent(1), claim, start, end(commands.TimedOut)},
	"failed>queued retry":                    {card, fail, retry},
	"cancelled>queued retry":                 {card, cancel, retry},
	"queued>paused pause":                    {card, pause},
	"running>paused pause":                   {agent(1), claim, start, standStill(true)},
	"paused>running resume":                  {agent(1), claim, start, standStill(true), standStill(false)},
	"paused>expired expiry":                  {agent(1), claim, start, standStill(true), end(commands.TimedOut)},
	"paused>unavailable unavailable":         {agent(1), pauseHere, recallAs(commands.Unavailable)},
	"blocked>unavailable unavailable":        {agent(1), block, recallAs(commands.Unavailable)},
	"awaiting_input>unavailable unavailable": {agent(1), claim, start, asking, end(commands.Interrupted), recallAs(commands.Unavailable)},
	"paused>queued resume":                   {card, pause, by((*backlog.Workspace).Resume)},
	"paused>completed operator":              {card, pause, accept},
	"paused>failed failure":                  {card, pause, fail},
	"paused>cancelled cancel":                {card, pause, cancel},
}

// Moves that no act here makes, by why.
var unreached = map[string]string{
	// Reviews are of agents: TestWhatIsDeliveredIsReviewed of spoke, and TestAReviewFromDeliveryToMerge. None leads to running, as the attempt is over.
	"review": "delivery changes approval merge conflict in_review> approved>",
	// Its row says queued while the task waits for an answer, before as after: TestAnAnswerWaitsForTheNextAttempt.
	"the loss of who asks": "queued>awaiting_input",
	// A retry of what a hub has ordered is an order of its own: TestRetry of hub.
	"what hubs order anew": "expired>queued unavailable>queued",
}

func known(m commands.Transition) bool {
	for _, list := range unreached {
		for _, word := range strings.Fields(list) {
			move := fmt.Sprintf("%s>%s", m.From, m.To)
			if word == string(m.By) || word == string(m.From)+">" || word == move || word == move+":"+string(m.By) {
				return true
			}
		}
	}
	return false
}

// Every move that is listed is one that an act makes, or is known to have none.
func TestEveryMoveIsReached(t *testing.T) {
	t.Parallel()
	for _, m := range commands.Transitions {
		name := fmt.Sprintf("%s>%s %s", m.From, m.To, m.By)
		steps := reached[name]
		require.NotEqual(t, known(m), steps != nil, "%s is reached by an act, or by none, and not both", name)
		if steps == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := newSide(t)
			w := &walker{scene: scene{t, side, boardOf(t, side, backlog.MainWorkspace)}}
			last := len(steps) - 1
			for _, s := range steps[:last] {
				require.NoError(t, s(w))
			}
			before, rows := w.stands(), w.audited()

			require.NoError(t, steps[last](w))

			require.Equal(t, name, fmt.Sprintf("%s>%s %s", before, w.stands(), w.triggerSince(rows)))
		})
	}
}

func (w *walker) stands() (s commands.State) {
	require.NoError(w, owner(w, w.URL).QueryRow(w.Context(), `SELECT state::text FROM standing WHERE id = $1`, w.task).Scan(&s))
	return s
}

// What the audit says last of a move, by its trigger: action, code and words, an empty code between two spaces.
var audited = map[commands.Trigger]string{
	commands.ByClaim: `^task\.claimed `, commands.ByStart: `^task\.running `, commands.ByLoss: `^task\.queued (lease_expired attempt 1 interrupted| attempt 1 failed)$`,
	commands.ByNoStart: `^task\.unavailable capability_missing attempt 1 unavailable$`, commands.ByUnavailable: `^task\.unavailable  as the peer recalls`,
	commands.ByQuestion: `^task\.question `, commands.ByAnswer: `^task\.answered `, commands.ByPause: `^(operator|task)\.paused `, commands.ByResume: `^(operator|task)\.resumed `,
	commands.ByBlock: `^operator\.blocked `, commands.ByUnblock: `^operator\.unblocked `, commands.ByDone: `^task\.completed  attempt 1 succeeded$`, commands.ByOperator: `^operator\.completed `,
	commands.ByRelease: `^(operator\.released |task\.queued limit attempt 1 parked$)`, commands.ByFailure: `^(operator|task)\.failed `,
	commands.ByCancel: `^operator\.cancelled cancel_requested `, commands.ByCancelled: `^(task\.cancelled kill_requested attempt 1 killed$|operator\.cancelled  )`,
	commands.ByExpiry: `^task\.expired `, commands.ByRetry: `^operator\.retried `,
}

// triggerSince is what moved the task as the rows of the audit say behind the first n of it; what becomes of its questions follows from the move.
func (w *walker) triggerSince(n int) (by commands.Trigger) {
	var said string
	require.NoError(w, owner(w, w.URL).QueryRow(w.Context(), `SELECT coalesce((SELECT format('%s %s %s', action, code, why) FROM (SELECT * FROM audit WHERE object = $1 ORDER BY seq OFFSET $2) AS a
		WHERE action <> 'task.withdrawn' ORDER BY seq DESC LIMIT 1), '')`, w.task, n).Scan(&said))
	for b, pattern := range audited {
		if regexp.MustCompile(pattern).MatchString(said) {
			require.Empty(w, by, "%q is of two triggers", said)
			by = b
		}
	}
	require.NotEmpty(w, by, "%q is of no trigger", said)
	return by
}

// audited counts what the audit has of the task.
func (w *walker) audited() (n int) {
	require.NoError(w, owner(w, w.URL).QueryRow(w.Context(), `SELECT count(*) FROM audit WHERE object = $1`, w.task).Scan(&n))
	return n
}

func card(w *walker) error {
	w.task = create(w, w.b, backlog.TaskSpec{Key: "a", Title: "t", MaxRetries: 1})[0].ID
	return nil
}

func agent(retries int) step {
	return func(w *walker) error {
		w.Meet(w, store.Obeys)
		r := w.request()
		r.Spawn.MaxRetries, w.task = retries, r.Spawn.Task
		require.Nil(w, w.asks(r)[0].Refusal)
		return nil
	}
}

// agentWithInput waits for what its order needs.
func agentWithInput(w *walker) error {
	w.Meet(w, store.Obeys)
	r := w.withInput(300 << 20)
	w.task = r.Spawn.Task
	require.Nil(w, w.asks(r)[0].Refusal)
	return nil
}

// withInput asks for an agent with one input, whose digest its size says.
func (s scene) withInput(sizes ...int64) backlog.Request {
	r := s.request()
	r.Spawn.Runtime, r.Spawn.Argv = commands.RuntimeExec, []string{"true"}
	for i, size := range sizes {
		r.Spawn.Inputs = append(r.Spawn.Inputs, commands.Input{Kind: commands.InputFile, Blob: s.input(size).Blob, Path: fmt.Sprint("in/", i)})
	}
	return r
}

func (s scene) input(size int64) backlog.Wanted {
	return backlog.Wanted{Conn: s.Conn.ID, Blob: commands.Blob{Digest: fmt.Sprintf("sha256-%064x", size), Size: size}}
}

func inputCame(w *walker) error { return w.backlog.InputCame(w.Context(), w.input(300<<20)) }

func inputLost(w *walker) error {
	_, err := w.backlog.InputLost(w.Context(), w.input(300<<20), "the hub does not have it")
	return err
}

func claim(w *walker) error {
	list, err := w.backlog.Claim(w.Context(), backlog.ClaimTerms{Owner: string(w.Self()), Limit: 1})
	if err == nil && len(list) == 0 {
		list, err = w.b.Claim(w.Context(), backlog.ClaimTerms{Owner: "worker", Limit: 1})
	}
	require.Len(w, list, 1)
	w.fence = list[0].Fence
	return err
}

func start(w *walker) error {
	held, err := w.backlog.Record(w.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: w.fence, Pid: 1, BootID: "b"}}})
	require.True(w, held[0])
	return err
}

func end(o commands.Outcome) step {
	return func(w *walker) error {
		held, err := w.backlog.Record(w.Context(), []backlog.Progress{{End: &backlog.End{Fence: w.fence, Outcome: o}}})
		require.True(w, held[0])
		return err
	}
}

// standStill orders the agent to stand still, or to go on, and lets its shim prove it.
func standStill(on bool) step {
	return func(w *walker) error {
		run := w.pausedHere(w.task, on)
		require.NotNil(w, run)
		held, err := w.backlog.MarkPaused(w.Context(), *run)
		require.True(w, held)
		return err
	}
}

func pauseHere(w *walker) error {
	w.pausedHere(w.task, true)
	return nil
}

func asking(w *walker) error {
	q, err := w.backlog.Ask(w.Context(), w.fence, inquiry)
	w.question = q.ID
	return err
}

func answer(w *walker) error {
	return w.backlog.AnswerHere(w.Context(), commands.Answer{Task: w.task, Question: w.question, Answer: "allow", By: "uid:1"})
}

func lose(w *walker) error {
	w.exec(`UPDATE leases SET (until, sweep_at) = (now(), '-infinity')`)
	return sweep(w)
}

func late(w *walker) error {
	w.exec(`UPDATE ready SET expires_at = now() - interval '1 s'`)
	w.exec(`UPDATE parked SET expires_at = now() - interval '1 s' WHERE why = 'deps'`)
	return sweep(w)
}

func sweep(w *walker) error {
	_, err := w.backlog.Sweep(w.Context(), 0)
	return err
}

func recallAs(state commands.State) step {
	return func(w *walker) error {
		w.restored()
		w.recall(commands.TaskStanding{Task: w.task, State: state, Attempt: 1, Outcome: commands.CouldNotStart})
		return nil
	}
}

func done(w *walker) error {
	_, err := w.b.Complete(w.Context(), backlog.Act{Fence: &w.fence})
	return err
}

// by is an act of the operator.
func by(act func(*backlog.Workspace, context.Context, backlog.Act) (backlog.Task, error)) step {
	return func(w *walker) error {
		_, err := act(w.b, w.Context(), backlog.Act{Task: w.task, Reason: "so"})
		return err
	}
}

var (
	accept = by((*backlog.Workspace).Complete)
	fail   = by((*backlog.Workspace).Fail)
	block  = by((*backlog.Workspace).Block)
	pause  = by((*backlog.Workspace).Pause)
	cancel = by((*backlog.Workspace).Cancel)
	retry  = by((*backlog.Workspace).Retry)
)
