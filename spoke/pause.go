package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// pauseAgain is the pause before an agent that could not be paused is asked again.
const pauseAgain = 2 * time.Second

// missedFor is how long a pause waits for its attempt to be here: it has just been claimed, or has just ended.
const missedFor = time.Minute

// A missedPause is one whose attempt was not here.
type missedPause struct {
	backlog.PauseRun
	at time.Time
}

// pause tells an attempt whether its agent is to stand still.
func (l *live) pause(p backlog.PauseRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.byTask[p.Fence.Task]; r != nil {
		r.turnIf(p)
		return
	}
	l.missed[p.Fence.Task] = missedPause{p, time.Now()}
}

// turnIf is called with the mutex of the live attempts, as turn.
func (r *run) turnIf(p backlog.PauseRun) {
	if r.fence.Attempt == p.Fence.Attempt {
		r.turn(p.Paused)
	}
}

func (r *run) turn(on bool) {
	r.pausing = on
	r.words++
	r.turned.Send()
}

// toPause says whether the agent of an attempt is to stand still.
func (l *live) toPause(r *run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.pausing
}

// words counts by attempt what was said of its pause.
func (l *live) words() map[*run]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := make(map[*run]int, len(l.byTask))
	for _, r := range l.byTask {
		words[r] = r.words
	}
	return words
}

// followPauses tells the attempts that words counts what was read of their pauses since then, but those that were told
// meanwhile. One that stands still is stopped again: somebody may have continued it. Unknown are those that were found
// standing still although nobody has said anything of it, neither in the database nor to this process.
func (l *live) followPauses(words map[*run]int, list []backlog.PauseRun) (unknown []*run) {
	are := make(map[string]backlog.PauseRun, len(list))
	for _, p := range list {
		are[p.Fence.Task] = p
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.missed, func(_ string, m missedPause) bool { return time.Since(m.at) > missedFor })
	for r, said := range words {
		p, known := are[r.fence.Task]
		known = known && p.Fence.Attempt == r.fence.Attempt
		still := r.agent != nil && r.agent.Paused().Since != 0
		switch {
		case r.words != said:
		case still && !known && said == 0 && !r.isLost():
			unknown = append(unknown, r)
		case known || r.pausing || still:
			r.turn(known && p.Paused)
		}
	}
	return unknown
}

// paused notes that an agent stands still, or goes on.
func (l *live) paused(r *run, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on {
		r.state = commands.Paused
		return
	}
	r.state = commands.Running
	r.signs.note(commands.SignResume, now()) // it could show none
}

// standStill counts the agents that do.
func (l *live) standStill() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.byTask {
		if r.state == commands.Paused {
			n++
		}
	}
	return n
}

// followPauses lets the agents stand still that are to, and the others go on. What is said comes by itself; this finds
// what was said while an attempt was being started, by another process, or in a commit that had no answer.
func (s *Spoke) followPauses(ctx context.Context) error {
	words := s.live.words()
	list, err := s.backlog.ToPause(ctx, s.owner())
	if err != nil {
		return err
	}
	for _, r := range s.live.followPauses(words, list) {
		if err := s.keepPaused(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// keepPaused notes as the word of this host that an agent stands still: who said so did after the backup that this
// database was restored from. What may not be paused goes on.
func (s *Spoke) keepPaused(ctx context.Context, r *run) error {
	about := []any{"id", r.fence.Task, "attempt", r.fence.Attempt}
	run, err := s.backlog.PauseHere(ctx, backlog.Pause{Task: r.fence.Task, Paused: true, Reason: "its agent was found paused, and nothing here says by whom", Actor: "self"})
	if refused, ok := errors.AsType[*commands.Refused](err); ok {
		s.Log.WarnContext(ctx, "agent found paused, which it may not be; it goes on", append(about, "err", refused)...)
		run, err = &backlog.PauseRun{Fence: r.fence}, nil
	} else if err == nil {
		s.Log.WarnContext(ctx, "agent found paused, and nothing says by whom; it stays paused", about...)
	}
	if run != nil {
		s.live.pause(*run)
	}
	return err
}

// attendPauses pauses the agent of an attempt when it is to stand still, and lets it go on, until ctx ends.
func (s *Spoke) attendPauses(ctx context.Context, r *run, agent *supervisor.Agent) {
	select {
	case <-ctx.Done():
	case <-r.proven: // what has not started, as far as is known, is not paused
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.turned:
		}
		for !s.turn(ctx, r, agent, s.live.toPause(r)) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pauseAgain):
			}
		}
	}
}

// turn reports whether the agent does what it is to, and that is recorded.
func (s *Spoke) turn(ctx context.Context, r *run, agent *supervisor.Agent, on bool) bool {
	if err := agent.Pause(ctx, on); err != nil {
		if ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "pausing an agent, or letting it go on; it is tried again", "id", r.fence.Task, "err", err)
		}
		return false
	}
	s.live.paused(r, on)
	held, err := s.backlog.MarkPaused(ctx, backlog.PauseRun{Fence: r.fence, Paused: on})
	if err != nil {
		if ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "recording the pause of an agent; it is tried again", "id", r.fence.Task, "err", err)
		}
		return false
	}
	if held {
		s.sayPaused(ctx, r, agent, on)
	}
	return true
}

func (s *Spoke) sayPaused(ctx context.Context, r *run, agent *supervisor.Agent, on bool) {
	about := []any{"id", r.fence.Task, "attempt", r.fence.Attempt}
	switch {
	case on && agent.Paused().Partly:
		s.Log.WarnContext(ctx, "agent paused, but for processes that could not be stopped", about...)
	case on:
		s.Log.InfoContext(ctx, "agent paused", about...)
	default:
		s.Log.InfoContext(ctx, "agent resumed", about...)
	}
}

// Pause pauses an agent by the word of this host, or lets it go on; its hub is told.
func (s *Spoke) Pause(ctx context.Context, ref string, p commands.Pause, actor string) (AgentView, error) {
	ctx = context.WithoutCancel(ctx)
	a, err := s.backlog.Agent(ctx, ref)
	if err != nil {
		return AgentView{}, err
	}
	if a.State.Terminal() {
		return AgentView{}, commands.Refuse(commands.Conflict, "agent %s has ended already: %s", a.ShortID, a.State).Hinting("see").Running("status", a.ShortID)
	}
	if err := s.lookForBegun(a.Conn, a.Task); err != nil {
		return AgentView{}, err
	}
	run, err := s.backlog.PauseHere(ctx, backlog.Pause{Task: a.Task, Paused: p.Paused, Reason: p.Reason, Actor: actor})
	if err != nil {
		return AgentView{}, err
	}
	s.Log.InfoContext(ctx, "pause ordered by the host", "id", a.Task, "as", p.Word(), "by", actor)
	if run != nil {
		s.live.pause(*run)
	}
	s.work.Send() // what goes on may be claimed
	before := a.Mirror.Pause
	a, err = s.backlog.Agent(ctx, a.Task)
	a.Mirror.Pause = following(a.Mirror.Pause, before)
	return s.Desk().view(a), err
}

// following is the newest word on a pause with the one that it has overruled, as a hub has it: nil where there is none.
func following(now, before json.RawMessage) json.RawMessage {
	var word map[string]json.RawMessage
	if before == nil || json.Unmarshal(now, &word) != nil {
		return now
	}
	word["before"] = before
	with, err := json.Marshal(word)
	if err != nil { // it was read from JSON
		return now
	}
	return with
}
