package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// TakenIn says what an intake did.
type TakenIn struct {
	Each  []Taken    // per message
	Again []Outgoing // stored answers to messages that came again, to send now; they may be lost
}

// Taken says what an intake did with one message.
type Taken struct {
	Code   signing.Code // "" = acted on
	Why    string
	Queued bool     // a task became ready
	Kill   *KillRun // a running attempt must be ended now
}

// A KillRun is a kill whose task runs: the lease is revoked already, Fence is
// the killer's.
type KillRun struct {
	Fence Fence
	Grace time.Duration
}

// intake is the state of one intake transaction.
type intake struct {
	db     *DB
	tx     *Tx
	batch  []Incoming
	conns  map[string]*connRow
	taken  []Taken
	closed struct{ conns, ids, digests []string }
	replay struct{ conns, re []string }
}

// Intake stores a batch of commands and the receipts that answer them, in one
// transaction: inbox, backlog, outbox and audit. A message that repeats a known
// one has no effect and its stored answer goes out again; one whose connection
// or key is not in order has no effect at all.
func (db *DB) Intake(ctx context.Context, batch []Incoming) (TakenIn, error) {
	return isolate(batch,
		func(part []Incoming) (TakenIn, error) { return db.intakeOnce(ctx, part) },
		func(m Incoming, err error) (TakenIn, error) {
			return TakenIn{Each: []Taken{{Code: commands.Internal, Why: err.Error()}}}, db.bury(ctx, m, err)
		},
		func(a, b TakenIn) TakenIn { return TakenIn{append(a.Each, b.Each...), append(a.Again, b.Again...)} })
}

func (db *DB) intakeOnce(ctx context.Context, batch []Incoming) (TakenIn, error) {
	var out TakenIn
	err := db.Tx(ctx, "taking in commands", func(ctx context.Context, tx *Tx) error {
		fates, conns, err := guard(ctx, tx, batch)
		if err != nil {
			return err
		}
		in := &intake{db: db, tx: tx, batch: batch, conns: conns, taken: make([]Taken, len(batch))}
		if err := in.act(ctx, fates); err != nil {
			return err
		}
		out.Each = in.taken
		out.Again, err = in.finish(ctx, fates)
		return err
	})
	return out, err
}

func (in *intake) act(ctx context.Context, fates []fate) error {
	var spawns []int
	for i, f := range fates {
		m := in.batch[i]
		if f.code != "" {
			in.refuseQuietly(i, f)
			continue
		}
		if m.Refusal == nil {
			m.Refusal = in.checkGrant(m)
		}
		if m.Refusal != nil {
			in.refuse(i, m.Refusal)
			continue
		}
		switch b := m.Body.(type) {
		case *commands.Spawn:
			spawns = append(spawns, i)
		case *commands.Kill:
			if err := in.kill(ctx, i, b); err != nil {
				return err
			}
		case *commands.Status:
			if err := in.status(ctx, i, b); err != nil {
				return err
			}
		case *commands.Received:
			in.receive(m, b)
		default:
			in.refuse(i, commands.Refuse(signing.HdrField, "a hub does not send %s", m.Header.Kind))
		}
	}
	return in.spawn(ctx, spawns)
}

// refuseQuietly notes a message that must not be answered anew.
func (in *intake) refuseQuietly(i int, f fate) {
	m := in.batch[i]
	in.taken[i] = Taken{Code: f.code, Why: f.why}
	if f.code == signing.ReplaySame {
		in.replay.conns, in.replay.re = append(in.replay.conns, m.Conn), append(in.replay.re, m.Header.ID)
		return
	}
	in.note(m, "message.refused", f.code, f.why)
}

func (in *intake) note(m Incoming, action string, code signing.Code, why string) {
	row := AuditRow{Actor: string(m.Header.Iss), Action: action, Object: TaskOf(m.Body), Code: string(code), Why: why, Message: m.Header.ID}
	if in.conns[m.Conn] != nil {
		row.Conn = m.Conn
	}
	in.tx.Audit(row)
}

// refuse answers message i with no.
func (in *intake) refuse(i int, r *commands.Refused) {
	m := in.batch[i]
	in.taken[i] = Taken{Code: r.Code, Why: r.Why}
	in.note(m, "command.refused", r.Code, r.Why)
	if m.Header.Kind == string(commands.ReceivedKind) {
		return
	}
	body := &commands.RefusedBody{Task: TaskOf(m.Body), Code: r.Code, Why: r.Why, Hint: r.Hint}
	if r == m.Refusal { // else the policy did not decide this
		body.Policy = m.Policy
	}
	in.answer(m, LaneEvt, body)
}

func (in *intake) answer(m Incoming, lane string, body commands.Body) {
	in.tx.Send(Draft{Conn: m.Conn, Lane: lane, Task: TaskOf(body), Body: body, Re: &signing.Ref{ID: m.Header.ID, SHA256: m.Digest.String()}})
}

// checkGrant asks the connection's grant; without one nothing is allowed.
func (in *intake) checkGrant(m Incoming) *commands.Refused {
	g := in.conns[m.Conn].grant
	spawn, isSpawn := m.Body.(*commands.Spawn)
	switch {
	case m.Header.Kind == string(commands.ReceivedKind):
		return nil
	case !g.live:
		return commands.Refuse(commands.Grant, "this connection has no grant, or it has expired")
	case !slices.Contains(g.kinds, m.Header.Kind):
		return commands.Refuse(commands.Grant, "the grant of this connection does not allow %s", m.Header.Kind)
	case isSpawn && !slices.Contains(g.runtimes, spawn.Runtime):
		return commands.Refuse(commands.Grant, "the grant of this connection does not allow runtime %s", spawn.Runtime)
	}
	return nil
}

func (in *intake) receive(m Incoming, b *commands.Received) {
	for _, r := range b.Messages {
		in.closed.conns = append(in.closed.conns, m.Conn)
		in.closed.ids, in.closed.digests = append(in.closed.ids, r.ID), append(in.closed.digests, r.SHA256)
	}
}

func (in *intake) finish(ctx context.Context, fates []fate) ([]Outgoing, error) {
	if err := quarantine(ctx, in.tx, in.batch, fates, "self"); err != nil {
		return nil, err
	}
	again, err := answersTo(ctx, in.tx, in.replay.conns, in.replay.re)
	if err != nil {
		return nil, err
	}
	if err := closeOut(ctx, in.tx, in.closed.conns, in.closed.ids, in.closed.digests); err != nil {
		return nil, err
	}
	return again, nil
}

func (in *intake) status(ctx context.Context, i int, b *commands.Status) error {
	m := in.batch[i]
	s := &commands.TaskState{Task: b.Task}
	err := in.tx.QueryRow(ctx, `SELECT state, reason, attempt, (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM tasks WHERE id = $1 AND conn = $2`,
		b.Task, m.Conn).Scan(&s.State, &s.Reason, &s.Attempt, &s.At)
	if err == pgx.ErrNoRows {
		in.refuse(i, commands.Refuse(commands.UnknownTask, "no task %s of yours here", b.Task))
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking up task %s: %w", b.Task, err)
	}
	in.answer(m, LaneEvt, s)
	in.note(m, "task.asked", "", "")
	return nil
}
