package spoke

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// review carries out what the reviewer of a task has decided, if nobody has decided otherwise before.
func (t taking) review(ctx context.Context, m *store.Incoming, b *commands.Review) error {
	state, err := t.backlog.Review(ctx, t.tx, m.Conn, string(m.Header.Iss), *b)
	if err != nil {
		return err
	}
	m.Answer(t.tx, &commands.Accepted{Task: b.Task, State: state})
	m.Note(t.tx, "task.reviewed", b.Verdict)
	return nil
}

// judgeRework asks the policy about the next attempt of an order that a review sends back. Where this host cannot say what the order names,
// the start of the attempt does.
func (s *Spoke) judgeRework(ctx context.Context, m *store.Incoming, task string) *commands.Refused {
	a, err := s.backlog.Agent(ctx, task)
	if err != nil || a.Conn != m.Conn { // the review says so
		return nil
	}
	order, err := s.backlog.Order(ctx, a.Task)
	if err != nil {
		m.Later = err
		return nil
	}
	env, err := s.openEnvironment(&order, a.Conn, a.Command, "/")
	if err != nil {
		return commands.Refuse(commands.BadEnv, "the values of the environment variables cannot be used any more")
	}
	rules := s.Policy.Now()
	named := rules.OpenNamed(&order)
	defer named.Close()
	refused := rules.JudgeNamed(&order, env.vars, named)
	if refused == nil || named.Fault != nil {
		return nil
	}
	m.Policy = rules.ID()
	return commands.Refuse(refused.Code, "the next attempt is not allowed any more by the policy, now version %s: %s", rules.ID(), refused.Why).Hinting("%s", refused.Hint)
}

// sentBack is the review that has sent the task of an attempt back; none where nothing has.
func (s *Spoke) sentBack(ctx context.Context, r *run) (v backlog.Reviewed, err error) {
	if !r.spec.Review {
		return v, nil
	}
	last, err := s.backlog.LastReview(ctx, r.fence.Task)
	if err == nil && last != nil {
		v = *last
	}
	return v, err
}
