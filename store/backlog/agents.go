package backlog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// An Agent is a task that a hub asked for and this host runs, or ran, as its
// host sees it.
type Agent struct {
	store.Mirror
	Hub string `json:"hub"` // who asked for it
}

// Agents returns the newest limit agents: those of one hub, or all when hub is
// empty; without ended ones when open is set, and only those with ids below before, where
// that is not empty.
func (b *Backlog) Agents(ctx context.Context, hub string, open bool, before string, limit int) ([]Agent, error) {
	var below *string
	if before != "" {
		below = &before
	}
	if open {
		return b.agents(ctx, statement("agents_open"), hub, limit, below)
	}
	return b.agents(ctx, statement("agents_newest"), hub, limit, below)
}

// Agent returns the agent that a person means by its id, its short id, or a part of
// one, see [commands.NamedIDs].
func (b *Backlog) Agent(ctx context.Context, ref string) (Agent, error) {
	list, err := b.AgentsNamed(ctx, ref)
	switch {
	case err != nil:
		return Agent{}, err
	case len(list) == 0:
		return Agent{}, commands.NoAgent(ref).Hinting("what this host refused is no agent here; see").Running("audit", "list", "--object", ref)
	case len(list) > 1:
		return Agent{}, commands.Several(ref, "agents", Candidates(list))
	}
	return list[0], nil
}

// AgentsNamed returns the agents that ref names, as [Backlog.Agent] takes it.
func (b *Backlog) AgentsNamed(ctx context.Context, ref string) ([]Agent, error) {
	ids, ok := commands.NamedIDs(ref)
	if !ok {
		return nil, nil
	}
	named := statement("agents_by_id")
	if ids.Tail {
		named = statement("agents_by_short_id")
	}
	return b.agents(ctx, named, ids.Low, ids.High)
}

// Candidates says of agents what tells them apart.
func Candidates(list []Agent) (all []string) {
	for _, a := range list {
		all = append(all, commands.Candidate(a.Task, a.Title, string(a.State)+" here, by order of "+a.Hub))
	}
	return all
}

func (b *Backlog) agents(ctx context.Context, sql string, args ...any) (list []Agent, err error) {
	err = b.db.Read(ctx, "reading agents", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Agent])
		return err
	})
	for i := range list {
		list[i].ShortID = commands.ShortID(list[i].Task)
	}
	return list, err
}

// A HostKill is the word of this host that an agent is to end.
type HostKill struct {
	commands.Kill
	ID    string // of the act; a repeat with the same one is the same act
	Actor string
}

// KillHere ends an agent by the word of its host: it is recorded and audited, and
// who asked for the agent is told its end with reason operator. What runs has
// lost its lease and is ended by the caller, by the answer; that is nil where
// nothing runs. A kill of an agent that has ended changes nothing.
func (b *Backlog) KillHere(ctx context.Context, h HostKill) (run *KillRun, err error) {
	err = b.db.Tx(ctx, "killing task "+h.Task, func(ctx context.Context, tx *store.Tx) error {
		run = nil
		var conn string
		var state commands.State
		err := tx.QueryRow(ctx, `SELECT c.id::text FROM tasks t JOIN connections c ON c.id = t.conn WHERE t.id = $1 FOR SHARE OF c`, h.Task).Scan(&conn)
		if err == pgx.ErrNoRows {
			return commands.Refuse(commands.NotFound, "no agent %s", h.Task)
		}
		if err == nil {
			err = holdStanding(ctx, tx, []string{h.Task})
		}
		if err == nil {
			err = tx.QueryRow(ctx, `SELECT state FROM standing WHERE id = $1`, h.Task).Scan(&state)
		}
		if err != nil || state.Terminal() {
			return err
		}
		if _, err := tx.Exec(ctx, statement("kill_here"), h.Task, h.Actor, h.ID, h.Reason, h.Grace(), h.Cancel); err != nil {
			return fmt.Errorf("recording the kill of task %s: %w", h.Task, err)
		}
		tx.Audit(store.AuditRow{Actor: h.Actor, Action: "task." + h.Word(), Object: h.Task, Why: h.Reason})
		run, err = b.Kill(ctx, tx, Kill{Task: h.Task, Actor: h.Actor, Grace: h.Grace(), Cancel: h.Cancel, host: true}, state)
		return err
	})
	return run, err
}
