package backlog_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// reference is the backlog as the model's table of transitions describes it: a
// slice of tasks and one short function per transition. It knows no places, no
// counters and no SQL, so it can be read in a minute.
type reference struct {
	tasks []*refTask // in the order of their creation
}

type refTask struct {
	spec     backlog.TaskSpec
	id       string
	order    int
	state    commands.State
	edges    []refEdge
	epoch    int64
	attempts []refAttempt
	retries  int
	replays  int
	nextType string
	later    bool // not before a time that has not come
	lapsed   bool // its lease has run out and nobody has swept it up
}

type refEdge struct {
	on  *refTask
	met bool
}

type refAttempt struct {
	owner   string
	epoch   int64
	outcome string // "" = open
}

func (r *reference) byID(id string) *refTask {
	for _, t := range r.tasks {
		if t.id == id {
			return t
		}
	}
	return nil
}

func (r *reference) byName(name string) *refTask {
	for _, t := range r.tasks {
		if t.spec.Key == name || t.id == name {
			return t
		}
	}
	return nil
}

func (t *refTask) held() bool { return t.state == commands.Claimed }

func (t *refTask) unmet() (n int) {
	for _, e := range t.edges {
		if !e.met {
			n++
		}
	}
	return n
}

// inVain reports whether t waits for a task that has ended without success.
func (t *refTask) inVain() bool {
	return slices.ContainsFunc(t.edges, func(e refEdge) bool { return !e.met && e.on.state.Terminal() })
}

func (t *refTask) eligibility() backlog.Eligibility {
	switch {
	case t.state != commands.Queued:
		return backlog.EligibilityUnknown
	case t.unmet() > 0:
		return backlog.WaitingDeps
	case t.later:
		return backlog.NotBefore
	}
	return backlog.EligibleReady
}

func (t *refTask) policy() string { return cmp.Or(t.spec.OnFailedDep, "hold") }
func (t *refTask) lane() string   { return cmp.Or(t.spec.Lane, backlog.DefaultLane) }

func (t *refTask) fence() backlog.Fence {
	return backlog.Fence{Task: t.id, Attempt: len(t.attempts), Epoch: t.epoch}
}

// ready lists what can be claimed, in the order of claiming.
func (r *reference) ready() []*refTask {
	var list []*refTask
	for _, t := range r.tasks {
		if t.eligibility() == backlog.EligibleReady {
			list = append(list, t)
		}
	}
	slices.SortStableFunc(list, func(a, b *refTask) int {
		return cmp.Or(cmp.Compare(b.spec.Priority, a.spec.Priority), cmp.Compare(a.order, b.order))
	})
	return list
}

// admissible lists what a claimer may have of it.
func (r *reference) admissible(terms backlog.ClaimTerms) []*refTask {
	return slices.DeleteFunc(r.ready(), func(t *refTask) bool {
		return !capable(terms, t) || len(terms.Lanes) > 0 && !slices.Contains(terms.Lanes, t.lane())
	})
}

func capable(terms backlog.ClaimTerms, t *refTask) bool {
	return !slices.ContainsFunc(t.spec.Capabilities, func(c string) bool { return !slices.Contains(terms.Capabilities, c) })
}

// depends reports whether t depends on other, directly or not.
func (t *refTask) depends(other *refTask) bool {
	return t == other || slices.ContainsFunc(t.edges, func(e refEdge) bool { return e.on.depends(other) })
}

// meets says what a new edge to a dependency is: met, or one that never will be.
func (t *refTask) meets(on *refTask) (met, bad bool) {
	bad = on.state.Terminal() && on.state != commands.Completed
	return on.state == commands.Completed || bad && t.policy() == "ignore", bad && t.policy() != "ignore"
}

func (r *reference) add(spec backlog.TaskSpec, id string) *refTask {
	t := &refTask{spec: spec, id: id, order: len(r.tasks), state: commands.Queued, nextType: "initial", later: spec.NotBefore.After(time.Now())}
	for _, name := range spec.DependsOn {
		on := r.byName(name)
		if !slices.ContainsFunc(t.edges, func(e refEdge) bool { return e.on == on }) {
			met, _ := t.meets(on)
			t.edges = append(t.edges, refEdge{on, met})
		}
	}
	r.tasks = append(r.tasks, t)
	return t
}

func (t *refTask) claim(owner string) {
	t.epoch++
	t.state, t.lapsed = commands.Claimed, false
	t.attempts = append(t.attempts, refAttempt{owner: owner, epoch: t.epoch})
}

// end closes the open attempt; a failure that is not final is retried while the
// task's retries last.
func (r *reference) end(t *refTask, outcome string, final, delayed bool) {
	t.attempts[len(t.attempts)-1].outcome = outcome
	t.later = delayed || outcome == "failed"
	switch outcome {
	case "succeeded":
		t.state = commands.Completed
	case "cancelled":
		t.state = commands.Cancelled
	case "blocked":
		t.state, t.nextType = commands.Blocked, "resume"
	case "released":
		t.state = commands.Queued
	case "interrupted":
		t.state, t.nextType = commands.Queued, "reclaim"
	case "failed":
		t.state, t.nextType = commands.Failed, "retry"
		if !final && t.retries < t.spec.MaxRetries {
			t.state, t.retries = commands.Queued, t.retries+1
		}
	}
	r.follow(t)
}

// endByHand is the operator's end of the open attempt: its worker's fence holds
// no longer, and no word of it counts as said before.
func (r *reference) endByHand(t *refTask, outcome string, delayed bool) {
	t.epoch++
	t.attempts[len(t.attempts)-1].epoch = t.epoch
	r.end(t, outcome, true, delayed)
}

// move takes a task that nobody holds to another state.
func (r *reference) move(t *refTask, to commands.State) {
	t.epoch++
	t.state = to
	r.follow(t)
}

// follow tells the dependents of a task that has just ended.
func (r *reference) follow(t *refTask) {
	if !t.state.Terminal() {
		return
	}
	for _, w := range r.tasks {
		for i, e := range w.edges {
			switch {
			case e.on != t || e.met:
			case t.state == commands.Completed || w.policy() == "ignore":
				w.edges[i].met = true
			case w.policy() == "cancel" && (w.state == commands.Queued || w.state == commands.Blocked):
				r.move(w, commands.Cancelled)
			}
		}
	}
}

// sweep takes back what has lapsed and returns it.
func (r *reference) sweep() (ids []string) {
	for _, t := range r.tasks {
		if t.held() && t.lapsed {
			r.end(t, "interrupted", false, false)
			ids = append(ids, t.id)
		}
	}
	return ids
}

// ripen lets the time of everything that waits for one come.
func (r *reference) ripen() {
	for _, t := range r.tasks {
		t.later = false
	}
}
