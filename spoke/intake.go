package spoke

import (
	"context"
	"errors"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// errHeld keeps a batch on the way: it comes again when the connection is back.
var errHeld = errors.New("the connection is suspended on this side; its commands wait")

// intake judges a batch of commands and stores it in one transaction. It
// returns nil, and so lets the batch be acknowledged, only after that was
// committed; what could not be opened is audited and dropped.
func (s *Spoke) intake(ctx context.Context, list []transport.Command) error {
	conn, verifier := s.hub.get()
	if conn.State == store.Suspended && list[0].Lane == transport.LaneRun {
		return errHeld
	}
	var batch []store.Incoming
	var bad []store.AuditRow
	for _, c := range list {
		in, row := s.open(conn, verifier, c.Body)
		if row != nil {
			bad = append(bad, *row)
			continue
		}
		batch = append(batch, in)
	}
	if len(bad) > 0 {
		if err := s.DB.Audit(ctx, bad...); err != nil {
			return err
		}
	}
	if len(batch) == 0 {
		return nil
	}
	taken, err := Take(ctx, s.DB, s.backlog, batch)
	if err != nil {
		return err
	}
	ring(s.outbox)
	s.follow(taken.Each)
	s.publish(ctx, taken.Again) // a lost answer is asked for again
	return s.followQuarantine(ctx, taken.Each)
}

// open checks one message and asks the policy about it: steps 1 to 8 of the
// order of checks, and the local policy. The rest is the transaction's.
func (s *Spoke) open(conn store.Connection, v signing.Verifier, wire []byte) (store.Incoming, *store.AuditRow) {
	in := store.Incoming{Conn: conn.ID, Wire: wire}
	o, err := v.Open(wire, time.Now())
	if err == nil {
		in.Header, in.Digest = o.Header(), o.Digest()
		var c commands.Command
		if c, err = commands.Parse(o); err == nil {
			in.Body = c.Body
			if spawn, ok := c.Body.(*commands.Spawn); ok {
				rules := s.Policy.Now()
				in.Refusal, in.Policy = rules.Judge(spawn), rules.ID()
			}
			return in, nil
		}
	}
	r, ok := errors.AsType[*signing.Rejected](err)
	if ok && r.Header != nil {
		in.Header, in.Digest = *r.Header, r.Digest
	}
	if in.Header.ID == "" { // not authentic: no answer, one line in the audit
		return in, &store.AuditRow{Actor: "link", Action: "message.refused", Code: string(commands.CodeOf(err)), Why: err.Error(), Conn: conn.ID}
	}
	in.Refusal = refusal(err)
	return in, nil
}

func refusal(err error) *commands.Refused {
	if r, ok := errors.AsType[*commands.Refused](err); ok {
		return r
	}
	if r, ok := errors.AsType[*signing.Rejected](err); ok {
		return commands.Refuse(r.Code, "%s", r.Why)
	}
	return &commands.Refused{Code: commands.Internal, Why: "this spoke could not read the command", Err: err}
}

// follow acts on what the transaction decided.
func (s *Spoke) follow(taken []Taken) {
	for _, t := range taken {
		if t.Kill != nil {
			s.live.kill(*t.Kill)
		}
		if t.Queued {
			ring(s.work)
		}
	}
}

func (s *Spoke) followQuarantine(ctx context.Context, taken []Taken) error {
	for _, t := range taken {
		if t.Code == signing.SeqReuse {
			return s.loadHub(ctx)
		}
	}
	return nil
}
