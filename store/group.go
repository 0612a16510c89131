package store

import "context"

// A Group turns callers that arrive at the same time into one transaction: the
// work of one round is everything that was waiting when the last one ended.
// The zero value is not usable; set Do and call Run.
type Group[In, Out any] struct {
	Max int                                               // items per round; 0 means 256
	Do  func(ctx context.Context, in []In) ([]Out, error) // answers each item, or fails all
	in  chan waiting[In, Out]
}

type waiting[In, Out any] struct {
	item   In
	answer chan<- answer[Out]
}

type answer[Out any] struct {
	out Out
	err error
}

// NewGroup returns a group that still has to Run.
func NewGroup[In, Out any](do func(context.Context, []In) ([]Out, error)) *Group[In, Out] {
	return &Group[In, Out]{Do: do, in: make(chan waiting[In, Out], 1024)}
}

// Run serves the group until ctx ends. An item taken before that is answered.
func (g *Group[In, Out]) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case first := <-g.in:
			g.round(ctx, first)
		}
	}
}

func (g *Group[In, Out]) round(ctx context.Context, first waiting[In, Out]) {
	limit := g.Max
	if limit == 0 {
		limit = 256
	}
	batch := []waiting[In, Out]{first}
	for len(batch) < limit {
		select {
		case next := <-g.in:
			batch = append(batch, next)
			continue
		default:
		}
		break
	}
	items := make([]In, len(batch))
	for i, w := range batch {
		items[i] = w.item
	}
	outs, err := g.Do(ctx, items)
	for i, w := range batch {
		if err != nil {
			w.answer <- answer[Out]{err: err}
			continue
		}
		w.answer <- answer[Out]{out: outs[i]}
	}
}

// Submit hands item to the next round and waits for its answer. When ctx ends
// first the item may still be worked on.
func (g *Group[In, Out]) Submit(ctx context.Context, item In) (Out, error) {
	return g.Hand(ctx, item)(ctx)
}

// Hand hands item to the next round: what is handed over later is in the same round or
// in one behind it. The function that it returns waits for the answer.
func (g *Group[In, Out]) Hand(ctx context.Context, item In) func(context.Context) (Out, error) {
	reply := make(chan answer[Out], 1)
	select {
	case g.in <- waiting[In, Out]{item, reply}:
	case <-ctx.Done():
		reply <- answer[Out]{err: ctx.Err()}
	}
	return func(ctx context.Context) (Out, error) {
		var none Out
		select {
		case a := <-reply:
			return a.out, a.err
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
}
