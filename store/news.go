package store

import (
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spawnmesh/spawnmesh/commands"
)

// ProgressEvery is the least time between two events of the progress of one attempt. An agent may say it with each word.
const ProgressEvery = 10 * time.Second

// newsSQL notes what heartbeats say of agents, each of which becomes an event: that an attempt overruns once, its progress
// not more often than every so often. What a heartbeat says of an attempt that is not the newest of its order, or of an order of another
// connection, is not news. The condition is not that ended_at is null: where few agents are open, the planner
// takes the whole of an index of those for less than a row of it, and keeps that plan when they are many. Mirrors are held in the order of tasks, as everybody holds them.
const newsSQL = `
	INSERT INTO agent_news (task, kind, conn, attempt, said_at, progress)
	SELECT s.task, s.kind, s.conn, s.attempt, s.said_at, s.progress
	FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::int[], $5::bigint[], $6::jsonb[]) AS s (task, kind, conn, attempt, said_at, progress)
	JOIN mirrors m ON m.task = s.task AND m.conn = s.conn AND m.attempt = s.attempt AND NOT is_terminal(m.state)
	LEFT JOIN agent_news o ON o.task = s.task AND o.kind = s.kind
	WHERE o.task IS NULL OR o.attempt <> s.attempt
		OR o.said_at <> s.said_at AND o.told_at NOT BETWEEN clock_timestamp() - $7::interval AND clock_timestamp()
	ORDER BY s.task FOR KEY SHARE OF m
	ON CONFLICT (task, kind) DO UPDATE SET conn = excluded.conn, attempt = excluded.attempt, said_at = excluded.said_at, progress = excluded.progress, told_at = clock_timestamp()`

// queueNews queues what beats say of agents that may be news. It is what was true when they were sent, so the order of
// the events of one agent is that of its heartbeats. One statement changes a row once: what is said twice of an agent is taken once.
func queueNews(tx *Tx, beats []Beat) {
	var tasks, kinds, conns []string
	var attempts []int
	var said []int64
	var progress []*commands.AgentProgress
	known := map[[2]string]bool{}
	add := func(conn string, a commands.AgentBeat, kind EventKind, at int64, p *commands.AgentProgress) {
		key := [2]string{a.Task, string(kind)}
		if known[key] {
			return
		}
		known[key] = true
		tasks, kinds, conns, attempts = append(tasks, a.Task), append(kinds, string(kind)), append(conns, conn), append(attempts, a.Attempt)
		said, progress = append(said, at), append(progress, p)
	}
	for _, b := range beats {
		for _, a := range b.Body.Agents {
			if a.Overrun {
				add(b.Conn, a, OverrunEvent, 0, nil)
			}
			if a.Progress != nil {
				add(b.Conn, a, ProgressEvent, a.Progress.At, a.Progress)
			}
		}
	}
	if len(tasks) > 0 {
		tx.Queue(newsSQL, tasks, kinds, conns, attempts, said, progress, ProgressEvery).Exec(func(tag pgconn.CommandTag) error {
			tx.silent = tag.RowsAffected() == 0 // events wait for their numbers
			return nil
		})
	}
}
