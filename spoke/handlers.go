package spoke

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// handlers say what the messages of hubs mean to a spoke.
func (s *Spoke) handlers() []federation.Handler {
	return []federation.Handler{{
		Kinds: []commands.Kind{commands.SpawnKind, commands.KillKind, commands.AnswerKind, commands.PauseKind, commands.ReviewKind, commands.StatusKind},
		Judge: s.judge, Taken: s.taken,
		Take: func(ctx context.Context, tx *store.Tx, from store.Standing, batch []*store.Incoming) error {
			return Take(ctx, s.backlog, tx, from, batch)
		},
	}, {Kinds: []commands.Kind{commands.OutputStoredKind}, Pass: s.outputStored}}
}

// outputStored hears how much output a hub has on disk.
func (s *Spoke) outputStored(ctx context.Context, c store.Connection, batch []*store.Incoming) error {
	for _, m := range batch {
		if err := s.output.Stored(ctx, c.ID, m.Re(), m.Body.(*commands.OutputStored).Streams); err != nil {
			return err
		}
	}
	return nil
}

// judge asks the policy about a spawn. One that asks for a task again which is here was
// allowed in its time; the policy is asked once more when the task starts.
func (s *Spoke) judge(ctx context.Context, m *store.Incoming) *commands.Refused {
	if err := s.lookForBegun(m.Conn, m.Task()); err != nil {
		m.Later = err
		return nil
	}
	if status, ok := m.Body.(*commands.Status); ok {
		m.Reasons, m.Left = s.reasons(ctx, m.Conn, status.Task)
	}
	if v, ok := m.Body.(*commands.Review); ok && v.Reworks() {
		return s.judgeRework(ctx, m, v.Task)
	}
	spawn, ok := m.Body.(*commands.Spawn)
	if !ok {
		return nil
	}
	if refused := s.refuseAnothers(ctx, m.Conn, spawn.Task); refused != nil {
		return refused
	}
	rules := s.Policy.Now()
	named := rules.OpenNamed(spawn)
	defer named.Close()
	m.Policy, m.Account = rules.ID(), named.Account()
	return s.judgeNamed(ctx, m, rules, named)
}

// judgeNamed judges a spawn by rules and by what it names. Where this host cannot say what that is, it comes again for a while, unless it
// is known.
func (s *Spoke) judgeNamed(ctx context.Context, m *store.Incoming, rules *policy.Policy, named *policy.Named) *commands.Refused {
	spawn := m.Body.(*commands.Spawn)
	refused := s.judgeOrder(m, func(env map[string]string) *commands.Refused { return rules.JudgeNamed(spawn, env, named) })
	fault := named.Fault != nil && (refused == nil || refused.Code == commands.BadPath)
	if !fault {
		s.left.judged(m.Conn, m.Header.ID)
	}
	if refused == nil && !fault {
		return nil
	}
	if _, err := rules.Level(); err != nil && refused != nil && refused.Code == commands.Capability {
		s.sayUnmet(ctx, err)
	}
	if known, err := s.backlog.Known(ctx, m.Conn, spawn.Task); err == nil && known {
		s.left.judged(m.Conn, m.Header.ID)
		m.Policy = "" // this one did not decide
		return nil
	}
	if fault {
		return s.unjudged(ctx, m, named)
	}
	if refused.Code == commands.BadPath {
		m.Aside = rules.ExplainDir(spawn)
	}
	return refused
}

// reasons are why an agent of a hub does not start, for that hub, and whether its order is left. Where they cannot be read, it is told the state alone.
func (s *Spoke) reasons(ctx context.Context, conn, task string) (list []commands.TaskReason, left bool) {
	known, err := s.backlog.Known(ctx, conn, task)
	if err != nil {
		return nil, false
	}
	if !known {
		list = commands.ToldReasons(s.left.why(conn, task))
		return list, len(list) > 0
	}
	why, err := s.Desk().Why(ctx, task, "hub", false)
	if err != nil {
		s.Log.DebugContext(ctx, "looking why an agent does not start, for its hub", "id", task, "err", err)
		return nil, false
	}
	return commands.ToldReasons(why.Reasons), false
}

// taken logs what became of orders, ends what was killed, and wakes the claimer.
func (s *Spoke) taken(ctx context.Context, batch []*store.Incoming) {
	s.work.Send()
	for _, m := range batch {
		if run, ok := m.Effect.(*backlog.KillRun); ok {
			s.live.kill(*run)
		} else if run, ok := m.Effect.(*backlog.PauseRun); ok {
			s.live.pause(*run)
		} else if m.Header.Kind == string(commands.KillKind) && m.Code == signing.ReplaySame {
			s.killAgain(ctx, m.Task())
		}
	}
	s.sayTaken(ctx, batch)
}

// killAgain carries out a kill that came once more, if its task runs here without its lease: the
// commit of the first one may have had no answer, and nobody was told.
func (s *Spoke) killAgain(ctx context.Context, task string) {
	if s.live.get(task) == nil {
		return
	}
	if k, found, err := s.backlog.PendingKill(ctx, task); err == nil && found { // else the next renewal finds it
		s.live.kill(k)
	}
}

// Take does what commands say, inside the transaction that stores them: the
// answers to them and their audit are part of it.
func Take(ctx context.Context, b *backlog.Backlog, tx *store.Tx, from store.Standing, batch []*store.Incoming) error {
	t := taking{b, tx}
	if err := t.holdKills(ctx, from.ID, batch); err != nil {
		return err
	}
	var spawns []*store.Incoming
	for _, m := range batch {
		m.Effect = nil
		var err error
		switch body := m.Body.(type) {
		case *commands.Spawn:
			if err = t.granted(ctx, from, body); err == nil {
				spawns = append(spawns, m)
			}
		case *commands.Kill:
			err = t.kill(ctx, m, body)
		case *commands.Pause:
			err = t.pause(ctx, m, body)
		case *commands.Answer:
			err = t.answer(ctx, m, body)
		case *commands.Review:
			err = t.review(ctx, m, body)
		case *commands.Status:
			err = t.status(ctx, m, body)
		}
		if r, ok := errors.AsType[*commands.Refused](err); ok {
			m.Refuse(tx, r)
		} else if err != nil {
			return err
		}
	}
	if len(spawns) == len(batch) { // each has one answer at least, and nothing else waits for locks
		tx.Reserve(from.ID, len(spawns))
	}
	return t.spawn(ctx, spawns)
}

// taking is the transaction that acts on commands.
type taking struct {
	backlog *backlog.Backlog
	tx      *store.Tx
}

// granted refuses a spawn that the grant of its connection does not allow, unless its
// task is here since a time when that did.
func (t taking) granted(ctx context.Context, from store.Standing, b *commands.Spawn) error {
	var refused error
	switch {
	case !slices.Contains(from.Runtimes, b.Runtime):
		refused = commands.Refuse(commands.Grant, "the grant of this connection does not allow runtime %s", b.Runtime)
	case b.Review && !slices.Contains(from.Kinds, string(commands.ReviewKind)): // it would wait for a review that never comes
		refused = commands.Refuse(commands.Grant, "the grant of this connection does not allow %s, and the order asks for a review", commands.ReviewKind)
	default:
		return nil
	}
	known, err := backlog.KnownIn(ctx, t.tx, from.ID, b.Task)
	if err == nil && !known {
		err = refused
	}
	return err
}

// spawn puts the tasks of spawn messages into the backlog. A task that is there
// already is answered with its state, with its start and with its result if it has ended; a task that
// was killed before it arrived is refused.
func (t taking) spawn(ctx context.Context, batch []*store.Incoming) error {
	if len(batch) == 0 {
		return nil
	}
	list := make([]backlog.Request, len(batch))
	for i, m := range batch {
		list[i] = backlog.Request{Conn: m.Conn, Asked: asked(m), Spawn: m.Body.(*commands.Spawn), Expires: time.UnixMilli(m.Header.Exp), Account: m.Account}
	}
	found, err := t.backlog.Request(ctx, t.tx, list)
	if err != nil {
		return err
	}
	for i, r := range found {
		m := batch[i]
		if r.Refusal != nil {
			m.Refuse(t.tx, r.Refusal)
			continue
		}
		action := "task.queued"
		if r.Known {
			action = "task.known"
		}
		re := m.Re()
		re.Attempt, re.Fence = r.Attempt, r.Epoch
		if r.Result != nil {
			re.Attempt = r.Result.Attempt
		}
		if r.Started > 0 && !r.State.Terminal() { // or this spoke, should it lose its disk, would run it again
			t.tx.Send(store.Draft{Conn: m.Conn, Body: &commands.Started{Task: m.Task(), Attempt: r.Attempt, At: r.Started}, Re: re})
		}
		m.Answer(t.tx, &commands.Accepted{Task: m.Task(), State: r.State, Known: r.Known, Policy: m.Policy})
		if r.Result != nil {
			t.tx.Send(store.Draft{Conn: m.Conn, Body: r.Result, Re: re})
		}
		m.Note(t.tx, action, "")
	}
	return nil
}

func asked(m *store.Incoming) backlog.Asked {
	return backlog.Asked{Command: m.Header.ID, Digest: m.Header.Body.SHA256}
}

// holdKills holds the tasks of several kills, pauses, answers and reviews at once, so that none is waited for
// while another one is held.
func (t taking) holdKills(ctx context.Context, conn string, batch []*store.Incoming) error {
	var tasks []string
	for _, m := range batch {
		switch b := m.Body.(type) {
		case *commands.Kill, *commands.Answer, *commands.Pause, *commands.Review:
			tasks = append(tasks, b.TaskID())
		}
	}
	if len(tasks) < 2 {
		return nil
	}
	return t.backlog.HoldKills(ctx, t.tx, conn, tasks)
}

// kill records a kill and does what can be done at once. A task that runs is
// ended after the commit, one that is not here yet leaves a tombstone.
func (t taking) kill(ctx context.Context, m *store.Incoming, b *commands.Kill) error {
	k := backlog.Kill{Conn: m.Conn, Asked: asked(m), Task: b.Task, Reason: b.Reason, Grace: b.Grace(),
		Expires: time.UnixMilli(m.Header.Exp), Actor: string(m.Header.Iss), Cancel: b.Cancel}
	state, err := t.backlog.NoteKill(ctx, t.tx, k)
	if err != nil {
		return err
	}
	if state == "" {
		m.Answer(t.tx, &commands.Accepted{Task: b.Task, State: commands.Cancelled})
		m.Note(t.tx, "task.tombstone", b.Reason)
		return nil
	}
	m.Answer(t.tx, &commands.Accepted{Task: b.Task, State: state})
	m.Note(t.tx, "task."+b.Word(), b.Reason)
	run, err := t.backlog.Kill(ctx, t.tx, k, state)
	if run != nil {
		m.Effect = run
	}
	return err
}

// pause notes whether a task is to stand still. One that runs is stopped, or goes on, after the commit.
func (t taking) pause(ctx context.Context, m *store.Incoming, b *commands.Pause) error {
	state, run, err := t.backlog.Pause(ctx, t.tx, backlog.Pause{Conn: m.Conn, Task: b.Task, Number: b.Number, Paused: b.Paused, Reason: b.Reason,
		Actor: string(m.Header.Iss), Expires: time.UnixMilli(m.Header.Exp)})
	if err != nil {
		return err
	}
	if state == "" { // it is not here yet
		if state = commands.Queued; b.Paused {
			state = commands.Paused
		}
	}
	if run != nil {
		m.Effect = run
	}
	m.Answer(t.tx, &commands.Accepted{Task: b.Task, State: state})
	m.Note(t.tx, "task."+b.Word(), b.Reason)
	return nil
}

// answer gives an agent the answer to its question, if nobody has before.
func (t taking) answer(ctx context.Context, m *store.Incoming, b *commands.Answer) error {
	state, err := t.backlog.Answer(ctx, t.tx, backlog.Answerer{Actor: string(m.Header.Iss), Conn: m.Conn}, *b)
	if err != nil {
		return err
	}
	m.Answer(t.tx, &commands.Accepted{Task: b.Task, State: state})
	m.Note(t.tx, "task.answer", b.Reason)
	return nil
}

// status answers how a task stands.
func (t taking) status(ctx context.Context, m *store.Incoming, b *commands.Status) error {
	st, err := t.backlog.Standing(ctx, t.tx, m.Conn, b.Task)
	if m.Left && commands.CodeOf(err) == commands.UnknownTask { // it waits here all the same
		st, err = backlog.Moved{State: commands.Queued, At: time.Now().UnixMilli()}, nil
	}
	if err != nil {
		return err
	}
	m.Answer(t.tx, &commands.TaskState{Task: b.Task, State: st.State, Reason: st.Reason, Attempt: st.Attempt, At: st.At, Reasons: m.Reasons})
	m.Note(t.tx, "task.status", "")
	return nil
}
