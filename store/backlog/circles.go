package backlog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// FailCircles fails the tasks that wait for each other. [Workspace.Link] lets no circle be closed: such tasks come from
// elsewhere, as rows of another version or of a restore. It returns what it failed.
func (b *Backlog) FailCircles(ctx context.Context) (failed []string, err error) {
	var seen map[string]string
	err = b.db.Read(ctx, "looking for tasks that wait for each other", func(ctx context.Context, conn *pgxpool.Conn) error {
		seen, err = findCircles(conn.Query(ctx, statement("waits_between"), nil)) // all of them, and nobody waits for us
		return err
	})
	if err != nil || len(seen) == 0 {
		return nil, err
	}
	tasks := slices.Sorted(maps.Keys(seen))
	err = b.db.Tx(ctx, "failing tasks that wait for each other", func(ctx context.Context, tx *store.Tx) error {
		failed = nil
		// Edges go only while the rows of their tasks are held: what is a circle now stays one.
		if err := hold(ctx, tx, tasks); err != nil {
			return err
		}
		still, err := findCircles(tx.Query(ctx, statement("waits_between"), tasks))
		if err != nil || len(still) == 0 {
			return err
		}
		failed, err = b.failCircles(ctx, tx, still)
		return err
	})
	return failed, err
}

func (b *Backlog) failCircles(ctx context.Context, tx *store.Tx, why map[string]string) ([]string, error) {
	tasks, err := pull(ctx, tx, slices.Sorted(maps.Keys(why)))
	if err != nil || len(tasks) == 0 {
		return nil, err
	}
	whys := make([]string, len(tasks))
	for i, t := range tasks {
		whys[i] = why[t]
	}
	rows, err := tx.Query(ctx, statement("fail_waiting"), tasks, whys, string(commands.DependencyCycle))
	if err != nil {
		return nil, fmt.Errorf("failing tasks: %w", err)
	}
	done, err := b.tellEnded(ctx, tx, rows, nil)
	if err != nil {
		return nil, err
	}
	return done, b.failDependents(ctx, tx, done)
}

// findCircles returns the tasks that wait for themselves, each with a text that names all of its circle.
func findCircles(rows pgx.Rows, err error) (map[string]string, error) {
	if err != nil {
		return nil, fmt.Errorf("looking for tasks that wait for each other: %w", err)
	}
	g, name := waits{next: map[string][]string{}, number: map[string]int{}, low: map[string]int{}}, map[string]string{}
	var task, dependency, called string
	_, err = pgx.ForEachRow(rows, []any{&task, &dependency, &called}, func() error {
		g.next[task], name[task] = append(g.next[task], dependency), called
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for tasks that wait for each other: %w", err)
	}
	found := map[string]string{}
	for _, circle := range g.circles() {
		names := make([]string, len(circle))
		for i, t := range circle {
			names[i] = name[t]
		}
		slices.Sort(names)
		for _, t := range circle {
			found[t] = "these tasks wait for each other: " + strings.Join(names, ", ")
		}
	}
	return found, nil
}

// waits are tasks and what each waits for. Its circles are found by Tarjan's algorithm.
type waits struct {
	next        map[string][]string
	number, low map[string]int // number 0 = not seen yet; low of a closed one is closed
	open        []string
	found       [][]string
}

const closed = 1 << 60

func (g *waits) circles() [][]string {
	for _, task := range slices.Sorted(maps.Keys(g.next)) {
		if g.number[task] == 0 {
			g.visit(task)
		}
	}
	return g.found
}

func (g *waits) visit(task string) {
	n := len(g.number) + 1
	g.number[task], g.low[task] = n, n
	g.open = append(g.open, task)
	for _, next := range g.next[task] {
		if g.number[next] == 0 {
			g.visit(next)
		}
		g.low[task] = min(g.low[task], g.low[next])
	}
	if g.low[task] < n {
		return
	}
	i := len(g.open) - 1
	for g.open[i] != task {
		i--
	}
	circle := slices.Clone(g.open[i:])
	g.open = g.open[:i]
	for _, t := range circle {
		g.low[t] = closed
	}
	if len(circle) > 1 {
		g.found = append(g.found, circle)
	}
}
