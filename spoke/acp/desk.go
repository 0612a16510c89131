package acp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
}

// kept is what an attempt keeps for the next one.
type kept struct {
	Version int            `json:"version"`
	Said    string         `json:"said,omitempty"`    // the last message of the agent
	Plan    []string       `json:"plan,omitempty"`    // its plan, an entry each
	Answers map[string]int `json:"answers,omitempty"` // how often it was answered what has that digest
}

func newDesk(d *door.Client, say func(string, ...any)) *desk {
	return &desk{door: d, say: say, wake: make(chan struct{}, 1), kept: kept{Version: 1, Answers: map[string]int{}}}
}

// change notes something that is to be told.
func (d *desk) change(f func()) {
	d.mu.Lock()
	f()
	d.mu.Unlock()
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
	for {
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
			d.say("telling the spoke how far the agent is: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(sayAgain):
		}
	}
}

func (d *desk) tellOnce(ctx context.Context) (err error) {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	at, dirty := d.at, d.dirty
	raw, _ := json.Marshal(d.kept)
	d.dirty.progress, d.dirty.kept = false, false
	d.mu.Unlock()
	if dirty.progress && at != (commands.Progress{}) {
		err = d.door.Do(ctx, http.MethodPost, "/v1/progress", at, nil)
	}
	if dirty.kept && err == nil {
		err = d.door.Send(ctx, http.MethodPut, "/v1/checkpoint", raw, nil)
	}
	return err
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

// ask asks a person and waits for the answer; "" = nobody has given one in time. A question of the same content is the same one until its answer is
// told: an attempt that was interrupted gets it in the next one, and an agent that asks twice is answered twice.
func (d *desk) ask(ctx context.Context, q door.Ask) (answer string, err error) {
	if d.door == nil {
		return "", nil
	}
	raw, _ := json.Marshal(q)
	sum := sha256.Sum256(raw)
	digest := hex.EncodeToString(sum[:16])
	d.mu.Lock()
	q.Key = fmt.Sprintf("acp-%s-%d", digest, d.kept.Answers[digest])
	d.mu.Unlock()
	a, err := d.await(ctx, q)
	if err != nil {
		return "", err
	}
	d.keep(func(k *kept) { k.Answers[digest]++ })
	if err := d.tellOnce(ctx); err != nil { // before the agent acts by it
		d.say("keeping that it was answered: %v", err)
	}
	if a.State == commands.QuestionAnswered {
		return a.Answer, nil
	}
	return "", nil
}

// await asks until the question is closed. A spoke that is away is waited for: it has the question.
func (d *desk) await(ctx context.Context, ask door.Ask) (q backlog.Question, err error) {
	method, path, body := http.MethodPost, "/v1/questions", any(ask)
	for until := time.Now().Add(time.Duration(ask.DeadlineMS)*time.Millisecond + time.Hour); ; {
		var next backlog.Question
		err = d.door.Do(ctx, method, path, body, &next)
		switch code := commands.CodeOf(err); {
		case err == nil && next.State != commands.QuestionOpen:
			return next, nil
		case err == nil:
			method, path, body = http.MethodGet, "/v1/questions/"+next.ID+"?wait=30s", nil
		case code == commands.NotFound: // the spoke was restored from a backup, which does not have it
			method, path, body = http.MethodPost, "/v1/questions", ask
		case code != commands.Unreachable && code != commands.StoreDown || ctx.Err() != nil || time.Now().After(until):
			return q, err
		}
	}
}
