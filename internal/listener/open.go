package listener

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/store"
)

// How often the tokens of requests that are being answered are looked at, and for how long.
const (
	lookAtTokens = time.Second
	lookTime     = 5 * time.Second
)

// openRequests are being answered, by the ids of their tokens. An answer that goes on ends with its token.
type openRequests struct {
	most int // of one token

	mu   sync.Mutex // guards all
	last int
	all  map[string]map[int]context.CancelFunc
}

func newOpenRequests(most int) *openRequests {
	return &openRequests{most: most, all: map[string]map[int]context.CancelFunc{}}
}

// begin returns the context of a request, which ends with its token, and what ends it. It refuses one that is too many.
func (o *openRequests) begin(ctx context.Context, token string) (context.Context, func(), error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all[token]) >= o.most {
		return nil, nil, refuseFor(secondsOfRate, "%d requests with this token are being answered already, and no more may be", o.most)
	}
	ctx, cancel := context.WithCancel(ctx)
	o.last++
	number := o.last
	if o.all[token] == nil {
		o.all[token] = map[int]context.CancelFunc{}
	}
	o.all[token][number] = cancel
	return ctx, func() {
		cancel()
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all[token], number)
		if len(o.all[token]) == 0 {
			delete(o.all, token)
		}
	}, nil
}

// watch ends requests whose tokens were revoked or have expired, until ctx ends. What the database cannot say is asked again.
func (o *openRequests) watch(ctx context.Context, db *store.DB) error {
	tick := time.NewTicker(lookAtTokens)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if ids := o.tokens(); len(ids) > 0 {
			looking, done := context.WithTimeout(ctx, lookTime)
			valid, err := db.ValidTokens(looking, ids)
			done()
			if err == nil {
				o.end(slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(valid, id) }))
			}
		}
	}
}

func (o *openRequests) tokens() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.all))
}

func (o *openRequests) end(ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		for _, cancel := range o.all[id] {
			cancel()
		}
	}
}
