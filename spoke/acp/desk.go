package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/door"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// sayAgain is between two words to the spoke: the newest counts.
const sayAgain = time.Second

// A desk tells the spoke what the agent does, through the door of the attempt. Progress and checkpoints are told beside the talk with the agent: a spoke
// that is away holds up nobody but who waits for an answer.
type desk struct {
	door *door.Client // nil = there is none
	say  func(format string, args ...any)

	telling sync.Mutex

	mu    sync.Mutex
	at    commands.Progress
	kept  kept
	dirty struct{ progress, kept bool }
	wake  chan struct{}

	asking map[string]chan struct{} // by the digest of a question; closed once it is not asked any more
}

// kept is what an attempt keeps for the next one.
type kept struct {
	Version int            `json:"version"`
	Said    string         `json:"said,omitempty"`    // the last message of the agent
	Plan    []string       `json:"plan,omitempty"`    // its plan, an entry each
	Answers map[string]int `json:"answers,omitempty"` // how often it was answered what has that digest
}

func newDesk(d *door.Client, say func(string, ...any)) *desk {
	return &desk{door: d, say: say, wake: make(chan struct{}, 1), asking: map[string]chan struct{}{}, kept: kept{Version: 1, Answers: map[string]int{}}}
}

// keptBefore reads what an attempt before has kept; it is not ok where another program has.
func keptBefore(raw []byte) (k kept, ok bool) {
	ok = json.Unmarshal(raw, &k) == nil && k.Version == 1
	if k.Answers == nil {
		k.Answers = map[string]int{}
	}
	return k, ok
}

// change notes something that is to be told.
func (d *desk) change(f func()) {
	d.mu.Lock()
	f()
	d.mu.Unlock()
	d.again()
}

// again has what is to be told looked for.
func (d *desk) again() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *desk) progress(f func(*commands.Progress)) {
	d.change(func() { f(&d.at); d.dirty.progress = true })
}

func (d *desk) keep(f func(*kept)) {
	d.change(func() { f(&d.kept); d.dirty.kept = true })
}

// tell tells what is new until ctx ends. stale is called where this attempt may say nothing more.
func (d *desk) tell(ctx context.Context, stale func()) {
	if d.door == nil {
		return
	}
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		err := d.tellOnce(ctx)
		if commands.CodeOf(err) == commands.StaleAttempt {
			stale()
			return
		}
		if err != nil && ctx.Err() == nil {
			if text := err.Error(); text != said {
				said = text
				d.say("telling the spoke how far the agent is: %v", err)
			}
			d.again()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(sayAgain):
		}
	}
}

// tellOnce tells what is new. What could not be told stays new.
func (d *desk) tellOnce(ctx context.Context) (err error) {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	at, dirty := d.at, d.dirty
	raw, _ := json.Marshal(d.kept)
	d.dirty.progress, d.dirty.kept = false, false
	d.mu.Unlock()
	var progress, keeping error
	if dirty.kept { // first: the next attempt needs it
		keeping = d.door.Send(ctx, http.MethodPut, "/v1/checkpoint", raw, nil)
	}
	switch {
	case away(keeping):
		progress = keeping
	case dirty.progress && at != (commands.Progress{}):
		progress = d.door.Do(ctx, http.MethodPost, "/v1/progress", at, nil)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty.progress = d.dirty.progress || dirty.progress && progress != nil
	d.dirty.kept = d.dirty.kept || keeping != nil
	return cmp.Or(keeping, progress)
}

// away reports whether the spoke was not there, or had no database, for as long as there is patience.
func away(err error) bool {
	code := commands.CodeOf(err)
	return code == commands.Unreachable || code == commands.StoreDown
}

// session keeps the id of the session for the next attempt.
func (d *desk) session(ctx context.Context, id string) {
	if d.door == nil {
		return
	}
	if err := d.door.Do(ctx, http.MethodPut, "/v1/session", door.Session{ID: id}, nil); err != nil {
		d.say("the session cannot be kept, so the next attempt begins a new one: %v", err)
	}
}

// end says how it ended.
func (d *desk) end(path string, word any) {
	if d.door == nil {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), d.door.Patience+10*time.Second)
	defer done()
	if err := d.tellOnce(ctx); err == nil || commands.CodeOf(err) != commands.StaleAttempt {
		if err := d.door.Do(ctx, http.MethodPost, path, word, nil); err != nil {
			d.say("telling the spoke how the agent ended: %v", err)
		}
	}
}

// asked are the questions of this task that were answered, with their answers.
func (d *desk) asked(ctx context.Context) (list []string) {
	if d.door == nil {
		return nil
	}
	var v door.Attempt
	if err := d.door.Do(ctx, http.MethodGet, "/v1/attempt", nil, &v); err != nil {
		d.say("looking for what was answered before: %v", err)
	}
	for _, q := range v.Questions {
		if q.Answer != "" {
			list = append(list, fmt.Sprintf("%s: %s", commands.OneLine(q.Text), commands.OneLine(q.Answer)))
		}
	}
	return list
}

// ask asks a person and waits for the answer; "" = nobody has given one in time. What has the same digest is the same question until its answer is told:
// an attempt that was interrupted gets it in the next one, and an agent that asks twice is answered twice.
func (d *desk) ask(ctx context.Context, digest string, q door.Ask) (answer string, err error) {
	if d.door == nil {
		return "", nil
	}
	leave, err := d.turn(ctx, digest)
	if err != nil {
		return "", err
	}
	defer leave()
	d.mu.Lock()
	q.Key = fmt.Sprintf("acp-%s-%d", digest, d.kept.Answers[digest])
	d.mu.Unlock()
	a, err := d.await(ctx, q)
	if err != nil && context.Cause(ctx) != errCancelled {
		return "", err
	}
	if err != nil {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(context.WithoutCancel(ctx), withdrawTime)
		defer done()
		if err := d.withdraw(ctx, q); err != nil {
			d.say("withdrawing a question that the agent does not ask any more: %v", err)
		}
	}
	d.keep(func(k *kept) { k.Answers[digest]++ })
	if err := d.tellOnce(ctx); err != nil { // before the agent acts by it
		d.say("keeping that it was answered: %v", err)
	}
	if a.State == commands.QuestionAnswered {
		return a.Answer, nil
	}
	return "", err
}

// turn waits until nobody else asks what has that digest: one answer is for one tool.
func (d *desk) turn(ctx context.Context, digest string) (leave func(), err error) {
	for {
		d.mu.Lock()
		other := d.asking[digest]
		if other == nil {
			mine := make(chan struct{})
			d.asking[digest] = mine
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				delete(d.asking, digest)
				d.mu.Unlock()
				close(mine)
			}, nil
		}
		d.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// withdrawTime is how long it may take to withdraw a question.
const withdrawTime = 10 * time.Second

// withdraw closes a question whose answer nobody waits for any more. It is asked again to learn its id: that it was asked may not have been heard.
func (d *desk) withdraw(ctx context.Context, ask door.Ask) error {
	var q backlog.Question
	err := d.door.Do(ctx, http.MethodPost, "/v1/questions", ask, &q)
	if err == nil && q.State == commands.QuestionOpen {
		err = d.door.Do(ctx, http.MethodDelete, "/v1/questions/"+q.ID, nil, nil)
	}
	return err
}

// await asks until the question is closed. A spoke that is away is waited for: it has the question.
func (d *desk) await(ctx context.Context, ask door.Ask) (q backlog.Question, err error) {
	method, path, body := http.MethodPost, "/v1/questions", any(ask)
	for until := time.Now().Add(time.Duration(ask.DeadlineMS)*time.Millisecond + time.Hour); ; {
		var next backlog.Question
		err = d.door.Do(ctx, method, path, body, &next)
		switch {
		case err == nil && next.State != commands.QuestionOpen:
			return next, nil
		case err == nil:
			method, path, body = http.MethodGet, "/v1/questions/"+next.ID+"?wait=30s", nil
		case commands.CodeOf(err) == commands.NotFound: // the spoke was restored from a backup, which does not have it
			method, path, body = http.MethodPost, "/v1/questions", ask
		case !away(err) || ctx.Err() != nil || time.Now().After(until):
			return q, err
		}
	}
}
