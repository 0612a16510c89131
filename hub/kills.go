package hub

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A KillRequest says which agents are to end: those on a spoke, those with some labels, or all.
type KillRequest struct {
	Spoke  string
	All    bool
	Labels commands.Selector
	Reason string
	Grace  time.Duration
	IDs    []string // those that the caller was shown
}

// A KillSummary says what became of them.
type KillSummary struct {
	Killed       int           `json:"killed"`        // their kills are ordered
	EndedAlready int           `json:"ended_already"` // since they were shown, or their end was ordered by somebody else
	Later        int           `json:"later"`         // are selected and were not shown, and go on
	Refused      []KillRefused `json:"refused"`
}

// A KillRefused is an agent whose kill is not ordered.
type KillRefused struct {
	ID     string        `json:"id"`
	Code   commands.Code `json:"code"`
	Detail string        `json:"detail"`
}

// killBatch is how many kills one transaction orders.
const killBatch = 200

// MostKilled is how many ids one request names.
const MostKilled = 5000

// KillSelected orders the end of those open agents that r selects and names and whose end nobody has ordered yet. Who asks
// has seen them: no time and no count tells what was shown, as an order may be committed later than its time says.
// It goes on where its caller leaves.
func (h *Hub) KillSelected(ctx context.Context, r KillRequest, actor string) (sum KillSummary, err error) {
	ctx = context.WithoutCancel(ctx)
	k := commands.Kill{Reason: r.Reason, GraceMS: r.Grace.Milliseconds()}
	if err := k.ValidateTerms(); err != nil {
		return sum, err
	}
	terms, err := h.selected(r)
	if err != nil {
		return sum, err
	}
	all, err := h.DB.Killable(ctx, terms)
	if err != nil {
		return sum, err
	}
	tasks, others := split(r.IDs, all)
	sum.Later = len(all) - len(tasks)
	passed, err := h.passedOver(ctx, others)
	if err != nil {
		return sum, err
	}
	for batch := range slices.Chunk(tasks, killBatch) {
		list, err := h.DB.OrderKills(ctx, batch, k, MaxLife, actor)
		if err != nil && sum.Killed+sum.EndedAlready == 0 {
			return sum, err
		}
		if err != nil { // of some it is known that they were ordered
			list = unordered(batch, err)
		}
		h.add(ctx, &sum, list)
	}
	h.add(ctx, &sum, passed)
	return sum, nil
}

// split are those of the shown agents that can be killed, in the order of killable, and the others.
func split(shown, killable []string) (tasks, others []string) {
	is := make(map[string]bool, len(shown))
	for _, id := range shown {
		is[id] = true
	}
	for _, task := range killable {
		if is[task] {
			tasks = append(tasks, task)
			delete(is, task)
		}
	}
	return tasks, slices.DeleteFunc(slices.Clone(shown), func(id string) bool { return !is[id] })
}

// passedOver says why nothing is ordered for agents that are named and cannot be killed, or are not selected.
func (h *Hub) passedOver(ctx context.Context, ids []string) (list []store.KillOrdered, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	over, err := h.DB.KillsOver(ctx, ids)
	for _, id := range ids {
		o := store.KillOrdered{Task: id}
		if ended, known := over[id]; !known {
			o.Err = commands.Refuse(commands.NotFound, "no agent %s", id)
		} else if !ended {
			o.Err = commands.Refuse(commands.Validation, "it is not selected")
		}
		list = append(list, o)
	}
	return list, err
}

// selected is what a request selects. A spoke has to be there: a name that is mistyped has no agents.
func (h *Hub) selected(r KillRequest) (t store.MirrorTerms, err error) {
	t = store.MirrorTerms{Spoke: r.Spoke, Open: true, Labels: r.Labels}
	if err := r.check(); err != nil {
		return t, err
	}
	switch narrow := r.Spoke != "" || !r.Labels.Empty(); {
	case r.All && narrow:
		return t, commands.Refuse(commands.Validation, "all agents are to end, and a spoke or labels select some").Hinting("give one or the other")
	case !r.All && !narrow:
		return t, commands.Refuse(commands.Validation, "nothing selects the agents that are to end").Hinting("name a spoke, labels or all")
	case r.Spoke != "":
		s, err := h.findSpoke(r.Spoke)
		t.Spoke = s.Name
		return t, err
	}
	return t, nil
}

// check wants each id whole and once.
func (r KillRequest) check() error {
	if len(r.IDs) > MostKilled {
		return commands.Refuse(commands.Validation, "%d agents are named, limit %d", len(r.IDs), MostKilled).Hinting("name the first of them, and ask again with the others")
	}
	seen := make(map[string]bool, len(r.IDs))
	for _, id := range r.IDs {
		if seen[id] || !signing.ValidUUID(id) {
			return commands.Refuse(commands.Validation, "%q is not the whole id of one more agent", commands.Clip(id)).Hinting("name each agent once, by the id that a list of agents has")
		}
		seen[id] = true
	}
	return nil
}

func unordered(tasks []string, err error) (list []store.KillOrdered) {
	refused := commands.Refuse(commands.CodeOf(err), "it is not known whether this was ordered: %v", err)
	for _, task := range tasks {
		list = append(list, store.KillOrdered{Task: task, Err: refused})
	}
	return list
}

func (h *Hub) add(ctx context.Context, sum *KillSummary, list []store.KillOrdered) {
	for _, o := range list {
		switch {
		case o.Err != nil:
			sum.Refused = append(sum.Refused, KillRefused{o.Task, o.Err.Code, o.Err.Why})
		case o.Sent:
			sum.Killed++
			h.sayOrder(ctx, commands.KillKind, o.Task, o.Spoke)
		default:
			sum.EndedAlready++
		}
	}
}
