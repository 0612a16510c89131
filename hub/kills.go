package hub

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// A KillRequest says which agents are to end: those on a spoke, those with some labels, or all.
type KillRequest struct {
	Spoke    string
	All      bool
	Labels   commands.Selector
	Reason   string
	Grace    time.Duration
	Expected int       // how many the caller was shown
	Through  time.Time // when the newest of them was made
}

// A KillSummary says what became of them.
type KillSummary struct {
	Killed       int           `json:"killed"`        // their kills are ordered
	EndedAlready int           `json:"ended_already"` // since they were shown, or their end was ordered by somebody else
	Later        int           `json:"later"`         // came after those that were shown, and go on
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

// KillSelected orders the end of all open agents that r selects and whose end nobody has ordered yet, without those that
// came after the newest that was shown. Fewer than expected have ended meanwhile; more were not shown, and none is killed.
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
	tasks, later, err := h.DB.Killable(ctx, terms)
	if err != nil {
		return sum, err
	}
	if len(tasks) > r.Expected {
		return sum, moreThanShown(r.Expected, len(tasks), later)
	}
	sum.Later = later
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
	sum.EndedAlready += r.Expected - len(tasks)
	return sum, nil
}

// moreThanShown refuses a kill of more agents than the caller was shown.
func moreThanShown(expected, found, later int) error {
	after := ""
	if later > 0 {
		after = fmt.Sprintf(", created later: %d", later)
	}
	return commands.Refuse(commands.Conflict, "nothing was killed: there are more open agents than were expected (expected: %d, found: %d%s)", expected, found, after).
		Hinting("list the agents again, and repeat the kill of what is there now")
}

// selected is what a request selects. A spoke has to be there: a name that is mistyped has no agents.
func (h *Hub) selected(r KillRequest) (t store.MirrorTerms, err error) {
	t = store.MirrorTerms{Spoke: r.Spoke, Open: true, Labels: r.Labels, Through: r.Through}
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
