package spoke

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// TakenIn says what became of a batch of commands.
type TakenIn struct {
	Each  []Taken          // per message
	Again []store.Outgoing // stored answers to messages that came again, to send now; they may be lost
}

// Taken says what became of one command.
type Taken struct {
	store.Fate
	Queued bool             // a task became ready
	Kill   *backlog.KillRun // a running attempt must be ended now
}

// Take stores a batch of commands, does what they say, and stores the receipts
// that answer them, in one transaction: inbox, backlog, outbox and audit.
func Take(ctx context.Context, db *store.DB, b *backlog.Backlog, batch []store.Incoming) (TakenIn, error) {
	out := TakenIn{Each: make([]Taken, len(batch))}
	done, err := db.TakeIn(ctx, "taking in commands", batch, func(ctx context.Context, tx *store.Tx, in *store.Intake) error {
		return (&taking{b, tx, in, batch, out.Each}).act(ctx)
	})
	for i, f := range done.Fates {
		out.Each[i].Fate = f
	}
	out.Again = done.Again
	return out, err
}

// taking is the transaction that acts on commands.
type taking struct {
	backlog *backlog.Backlog
	tx      *store.Tx
	in      *store.Intake
	batch   []store.Incoming
	taken   []Taken
}

func (t *taking) act(ctx context.Context) error {
	var spawns []int
	for i, f := range t.in.All() {
		t.taken[i] = Taken{}
		if f.Code != "" {
			continue
		}
		m := t.batch[i]
		if m.Refusal == nil {
			m.Refusal = checkGrant(t.in.Grant(i), m)
		}
		if m.Refusal != nil {
			t.refuse(i, m.Refusal)
			continue
		}
		var err error
		switch b := m.Body.(type) {
		case *commands.Spawn:
			spawns = append(spawns, i)
		case *commands.Kill:
			err = t.kill(ctx, i, b)
		case *commands.Status:
			err = t.status(ctx, i, b)
		case *commands.Received:
			for _, r := range b.Messages {
				t.in.Close(i, r.ID, r.SHA256)
			}
		default:
			t.refuse(i, commands.Refuse(signing.HdrField, "a hub does not send %s", m.Header.Kind))
		}
		if err := t.refused(i, err); err != nil {
			return err
		}
	}
	return t.spawn(ctx, spawns)
}

// checkGrant asks the connection's grant; without one nothing is allowed.
func checkGrant(g store.Grant, m store.Incoming) *commands.Refused {
	spawn, isSpawn := m.Body.(*commands.Spawn)
	switch {
	case m.Header.Kind == string(commands.ReceivedKind):
		return nil
	case !g.Live:
		return commands.Refuse(commands.Grant, "this connection has no grant, or it has expired")
	case !slices.Contains(g.Kinds, m.Header.Kind):
		return commands.Refuse(commands.Grant, "the grant of this connection does not allow %s", m.Header.Kind)
	case isSpawn && !slices.Contains(g.Runtimes, spawn.Runtime):
		return commands.Refuse(commands.Grant, "the grant of this connection does not allow runtime %s", spawn.Runtime)
	}
	return nil
}

// refused answers message i with no when err is a refusal, and returns any
// other error.
func (t *taking) refused(i int, err error) error {
	if r, ok := errors.AsType[*commands.Refused](err); ok {
		t.refuse(i, r)
		return nil
	}
	return err
}

func (t *taking) refuse(i int, r *commands.Refused) {
	m := t.batch[i]
	t.in.Refuse(i, "command.refused", r.Code, r.Why)
	if m.Header.Kind != string(commands.ReceivedKind) {
		body := &commands.RefusedBody{Task: store.TaskOf(m.Body), Code: r.Code, Why: r.Why, Hint: r.Hint}
		if r == m.Refusal { // else the policy did not decide this
			body.Policy = m.Policy
		}
		t.answer(i, body)
	}
}

func (t *taking) answer(i int, body commands.Body) {
	m := t.batch[i]
	t.tx.Send(store.Draft{Conn: m.Conn, Lane: store.LaneEvt, Task: store.TaskOf(body), Body: body,
		Re: &signing.Ref{ID: m.Header.ID, SHA256: m.Digest.String()}})
}

func asked(m store.Incoming) backlog.Asked {
	return backlog.Asked{Command: m.Header.ID, Digest: m.Digest.String()}
}

// spawn puts the tasks of spawn messages into the backlog. A task that is there
// already is answered with its state; a task that was killed before it arrived
// is refused.
func (t *taking) spawn(ctx context.Context, which []int) error {
	if len(which) == 0 {
		return nil
	}
	list := make([]backlog.Request, len(which))
	for n, i := range which {
		m := t.batch[i]
		list[n] = backlog.Request{Conn: m.Conn, Asked: asked(m), Spawn: m.Body.(*commands.Spawn), Expires: time.UnixMilli(m.Header.Exp)}
	}
	found, err := t.backlog.Request(ctx, t.tx, list)
	if err != nil {
		return err
	}
	for n, r := range found {
		i, task := which[n], list[n].Spawn.Task
		if r.Refusal != nil {
			t.refuse(i, r.Refusal)
			continue
		}
		action := "task.queued"
		if r.Known {
			action = "task.known"
		}
		t.taken[i].Queued = !r.Known
		t.answer(i, &commands.Accepted{Task: task, State: r.State, Known: r.Known, Policy: t.batch[i].Policy})
		t.in.Note(i, action, "", "")
	}
	return nil
}

// kill records a kill and does what can be done at once. A task that runs is
// ended by the caller, one that is not here yet leaves a tombstone.
func (t *taking) kill(ctx context.Context, i int, b *commands.Kill) error {
	m := t.batch[i]
	k := backlog.Kill{Conn: m.Conn, Asked: asked(m), Task: b.Task, Reason: b.Reason, Grace: b.Grace(),
		Expires: time.UnixMilli(m.Header.Exp), Actor: string(m.Header.Iss)}
	state, err := t.backlog.NoteKill(ctx, t.tx, k)
	if err != nil {
		return err
	}
	if state == "" {
		t.answer(i, &commands.Accepted{Task: b.Task, State: commands.Cancelled})
		t.in.Note(i, "task.tombstone", "", b.Reason)
		return nil
	}
	t.answer(i, &commands.Accepted{Task: b.Task, State: state})
	t.in.Note(i, "task.kill", "", b.Reason)
	t.taken[i].Kill, err = t.backlog.Kill(ctx, t.tx, k, state)
	return err
}

func (t *taking) status(ctx context.Context, i int, b *commands.Status) error {
	s, err := t.backlog.Standing(ctx, t.tx, t.batch[i].Conn, b.Task)
	if err != nil {
		return err
	}
	t.answer(i, &commands.TaskState{Task: b.Task, State: s.State, Reason: s.Reason, Attempt: s.Attempt, At: s.At})
	t.in.Note(i, "task.asked", "", "")
	return nil
}
