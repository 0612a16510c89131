package backlog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// creation is the state of one Create.
type creation struct {
	ws      *Workspace
	specs   []TaskSpec
	ids     []string // of the tasks to be, chosen before the first try
	digests [][]byte
	act     string // names the batch in the audit
	out     []Created
	tries   int
}

func (c *creation) prepare() error {
	for i := range c.specs {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		digest, err := c.specs[i].digest()
		if err != nil {
			return err
		}
		c.ids, c.digests = append(c.ids, id.String()), append(c.digests, digest)
	}
	c.act = uuid.NewString()
	return nil
}

func (c *creation) run(ctx context.Context, tx *store.Tx) error {
	c.tries++
	if c.tries > 1 {
		// The answer to an earlier commit may have been lost; what it was to say
		// still stands in out.
		done, err := c.mine(ctx, tx)
		if err != nil || done {
			return err
		}
	}
	c.out = make([]Created, len(c.specs))
	if err := c.findExisting(ctx, tx); err != nil {
		return err
	}
	deps, err := c.findDependencies(ctx, tx)
	if err != nil {
		return err
	}
	classes, err := c.classes(ctx, tx)
	if err != nil {
		return err
	}
	return c.insert(ctx, tx, deps, classes)
}

// mine reports whether an earlier try was committed.
func (c *creation) mine(ctx context.Context, tx *store.Tx) (done bool, err error) {
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM tasks WHERE id = ANY ($1::uuid[]))`, c.ids).Scan(&done)
	return done, err
}

// findExisting answers specs whose key or idempotency key is taken. One that
// says the same as before finds its task, and puts it back when it was blocked;
// one that says something else is refused.
func (c *creation) findExisting(ctx context.Context, tx *store.Tx) error {
	byKey, byIdem := map[string]int{}, map[string]int{}
	for i, s := range c.specs {
		if _, twice := byKey[s.Key]; twice && s.Key != "" {
			return commands.Refuse(commands.Conflict, "the key %q is given to two tasks of one call", commands.Clip(s.Key))
		}
		if first, twice := byIdem[s.IdempotencyKey]; twice && s.IdempotencyKey != "" {
			return commands.Refuse(commands.Idempotency, "tasks %d and %d of one call have the same idempotency key", first+1, i+1)
		}
		byKey[s.Key], byIdem[s.IdempotencyKey] = i, i
	}
	delete(byKey, "")
	delete(byIdem, "")
	if len(byKey)+len(byIdem) == 0 {
		return nil
	}
	if len(byKey)+len(byIdem) > 1 {
		if _, err := tx.Exec(ctx, statement("hold_names"), c.ws.name, slices.Concat(keysOf(byKey), keysOf(byIdem))); err != nil {
			return fmt.Errorf("holding the keys of new tasks: %w", err)
		}
	}
	rows, err := tx.Query(ctx, statement("find_existing"), c.ws.name, keysOf(byKey), keysOf(byIdem))
	if err != nil {
		return err
	}
	var id, key, idem string
	var digest []byte
	var state commands.State
	var blocked []string
	_, err = pgx.ForEachRow(rows, []any{&id, &key, &idem, &digest, &state}, func() error {
		i, found := byIdem[idem]
		if !found {
			i = byKey[key]
		}
		if !bytes.Equal(digest, c.digests[i]) {
			return takenBy(c.specs[i], id, state, found)
		}
		c.out[i] = Created{ID: id, Key: key, Existing: true}
		if state == commands.Blocked {
			blocked = append(blocked, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.ws.unpark(ctx, tx, commands.ByUnblock, blocked, "task.unblocked", "created again")
}

func takenBy(s TaskSpec, id string, state commands.State, byIdempotency bool) error {
	if byIdempotency {
		return commands.Refuse(commands.Idempotency, "the idempotency key %q was used for task %s with other content", commands.Clip(s.IdempotencyKey), id)
	}
	return commands.Refuse(commands.Conflict, "the key %q belongs to task %s, which is %s and says something else", commands.Clip(s.Key), id, state).
		Hinting("choose another key; a repeated create must say exactly the same")
}

func keysOf(m map[string]int) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	return list
}

// dependency is a task that a new one depends on.
type dependency struct {
	id    string
	state commands.State
}

// findDependencies resolves what the specs depend on and holds it as it is
// until the commit: one that completes at this moment either is seen as
// completed here, or sees the new edge when it resolves its dependents.
func (c *creation) findDependencies(ctx context.Context, tx *store.Tx) ([][]dependency, error) {
	lists := make([][]dependency, len(c.specs))
	var refs []string
	for i, s := range c.specs {
		if !c.out[i].Existing {
			refs = append(refs, s.DependsOn...)
		}
	}
	known, err := findTasks(ctx, tx, c.ws.name, refs)
	if err != nil {
		return nil, err
	}
	for i, s := range c.specs {
		if c.out[i].Existing {
			continue
		}
		seen := map[string]bool{}
		for _, ref := range s.DependsOn {
			d, ok := known[ref]
			if !ok {
				return nil, commands.Refuse(commands.NotFound, "task %q depends on %q, and there is no such task", commands.Clip(s.name()), commands.Clip(ref)).
					Hinting("create it first, or link it later").Running("backlog", "link", "--from", "ID", "--to", "ID")
			}
			if !seen[d.id] {
				seen[d.id] = true
				lists[i] = append(lists[i], d)
			}
		}
		if s.Key != "" {
			known[s.Key] = dependency{c.ids[i], commands.Queued}
		}
	}
	return lists, nil
}

func (s TaskSpec) name() string {
	if s.Key != "" {
		return s.Key
	}
	return s.Title
}

// findTasks looks up keys and ids and holds the rows against changes, in the
// order of their ids so that two callers cannot wait for each other.
func findTasks(ctx context.Context, tx *store.Tx, workspace string, refs []string) (map[string]dependency, error) {
	known := map[string]dependency{}
	if len(refs) == 0 {
		return known, nil
	}
	refs = slices.Compact(slices.Sorted(slices.Values(refs)))
	ids := slices.DeleteFunc(slices.Clone(refs), func(r string) bool { return !looksLikeID(r) })
	rows, err := tx.Query(ctx, statement("hold_tasks"),
		workspace, refs, ids)
	if err != nil {
		return nil, fmt.Errorf("looking up dependencies: %w", err)
	}
	var d dependency
	var key string
	_, err = pgx.ForEachRow(rows, []any{&d.id, &key, &d.state}, func() error {
		known[d.id] = d
		if key != "" {
			known[key] = d
		}
		return nil
	})
	return known, err
}

// classes interns the classes of the new tasks, each once.
func (c *creation) classes(ctx context.Context, tx *store.Tx) ([]int, error) {
	ids := make([]int, len(c.specs))
	for i := range c.specs {
		if c.out[i].Existing {
			continue
		}
		id, err := c.ws.backlog.classes.of(ctx, tx, c.ws.name, c.specs[i].class())
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	return ids, nil
}

// newTasks are the columns of tasks to be inserted, and of what only some have.
type newTasks struct {
	id, key, title, phase, idem, onFail, reason []string
	lane                                        []string
	priority, class, retries, unmet             []int
	backoff                                     []int64
	digest                                      [][]byte
	estimate                                    []amounts
	notBefore                                   []*time.Time
	hasBody                                     []bool

	bodyTask, body    []string
	acceptance        []*json.RawMessage
	edgeTask, edgeDep []string
	edgeMet           []bool
	waiting           []string // those that may not be ready at once
}

func (c *creation) insert(ctx context.Context, tx *store.Tx, deps [][]dependency, classes []int) error {
	var n newTasks
	for i := range c.specs {
		if c.out[i].Existing {
			continue
		}
		c.out[i] = Created{ID: c.ids[i], Key: c.specs[i].Key}
		if err := n.add(&c.specs[i], c.ids[i], c.digests[i], classes[i], deps[i]); err != nil {
			return err
		}
	}
	if len(n.id) == 0 {
		return nil
	}
	object := c.act
	if len(n.id) == 1 {
		object = n.id[0]
	}
	var batch pgx.Batch
	takeNewWork(&batch, c.ws.name, n.class, n.estimate)
	batch.Queue(statement("create_tasks"),
		c.ws.name, c.ws.actor, n.id, n.key, n.title, n.phase, n.priority, n.class, n.idem, n.digest, n.onFail,
		n.notBefore, n.retries, n.unmet, n.reason, n.lane, n.estimate, n.hasBody, object, n.backoff)
	n.queueRest(&batch, c.ws.name)
	batch.Queue(notify)
	if err := tx.SendLast(ctx, &batch); err != nil {
		return refusedWork(fmt.Errorf("filling the backlog: %w", err))
	}
	return nil
}

// queueRest queues what only some of the tasks have.
func (n *newTasks) queueRest(batch *pgx.Batch, workspace string) {
	if len(n.body) > 0 {
		batch.Queue(statement("create_bodies"), workspace, n.bodyTask, n.body, n.acceptance)
	}
	if len(n.edgeTask) > 0 {
		batch.Queue(statement("create_edges"), workspace, n.edgeTask, n.edgeDep, n.edgeMet)
	}
	if len(n.waiting) > 0 {
		batch.Queue(statement("create_waiting"), workspace, n.waiting)
	}
}

func (n *newTasks) add(s *TaskSpec, id string, digest []byte, class int, deps []dependency) error {
	onFail := s.OnFailedDep
	if onFail == "" {
		onFail = "hold"
	}
	unmet, reason, err := n.addEdges(s, id, onFail, deps)
	if err != nil {
		return err
	}
	hasBody := s.Body != "" || len(s.Acceptance) > 0
	n.id, n.key, n.title, n.hasBody = append(n.id, id), append(n.key, s.Key), append(n.title, s.Title), append(n.hasBody, hasBody)
	n.phase, n.idem, n.digest = append(n.phase, s.Phase), append(n.idem, s.IdempotencyKey), append(n.digest, digest)
	n.priority, n.class, n.retries = append(n.priority, s.Priority), append(n.class, class), append(n.retries, s.MaxRetries)
	n.backoff = append(n.backoff, s.BackoffMS)
	n.unmet, n.reason, n.onFail = append(n.unmet, unmet), append(n.reason, reason), append(n.onFail, onFail)
	n.lane, n.estimate = append(n.lane, s.laneName()), append(n.estimate, s.estimate())
	if hasBody {
		var acceptance *json.RawMessage
		if len(s.Acceptance) > 0 {
			acceptance = &s.Acceptance
		}
		n.bodyTask, n.body, n.acceptance = append(n.bodyTask, id), append(n.body, s.Body), append(n.acceptance, acceptance)
	}
	var notBefore *time.Time
	if !s.NotBefore.IsZero() {
		notBefore = &s.NotBefore
	}
	n.notBefore = append(n.notBefore, notBefore)
	if unmet > 0 || notBefore != nil {
		n.waiting = append(n.waiting, id)
	}
	return nil
}

// addEdges adds what a task depends on. It returns how many of these are not met, and
// the reason that the task shows if one of them has failed.
func (n *newTasks) addEdges(s *TaskSpec, id, onFail string, deps []dependency) (unmet int, reason string, err error) {
	for _, d := range deps {
		met, bad := meets(d.state, onFail)
		if bad && onFail == "cancel" {
			return 0, "", commands.Refuse(commands.Conflict, "task %q depends on %s, which is %s, and is to be cancelled when a dependency fails", commands.Clip(s.name()), d.id, d.state)
		}
		if bad {
			reason = string(commands.DependencyFailed)
		}
		if !met {
			unmet++
		}
		n.edgeTask, n.edgeDep, n.edgeMet = append(n.edgeTask, id), append(n.edgeDep, d.id), append(n.edgeMet, met)
	}
	return unmet, reason, nil
}

// meets says whether a dependency in state satisfies, and whether it has ended
// without ever doing so.
func meets(state commands.State, onFail string) (met, bad bool) {
	if state == commands.Completed {
		return true, false
	}
	bad = state.Terminal()
	return bad && onFail == "ignore", bad && onFail != "ignore"
}
