package spoke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/door"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/place"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The variables that a program in an agent finds its door by.
const (
	SocketVariable = runtime.SocketVariable
	TokenVariable  = runtime.TokenVariable
)

// doorVariables say where the door of an attempt is that is about to start.
func (r *run) doorVariables(ids map[string]string) {
	dir := r.own().Door
	ids[runtime.SocketVariable], ids[runtime.TokenVariable] = filepath.Join(dir, door.Socket), filepath.Join(dir, door.Token)
	if !r.until.IsZero() {
		ids[runtime.DeadlineVariable] = r.until.UTC().Format(time.RFC3339)
	}
}

// workNote is the file among an attempt's control files that says which directory its agent began in. A confined agent cannot
// write it, and may be able to put another one there, or a link, while its spoke is away.
const workNote = "workdir"

// openWork opens the working directory of an agent that is about to start: the one that was judged, or its own.
func (r *run) openWork(n *policy.Named) (*place.Place, error) {
	if r.spec.Dir == "" {
		return runtime.OpenDir(r.own().Work)
	}
	return n.Dir, n.NoDir
}

// noteWork is the working directory of an agent that is about to start, for [Spoke.openDoor].
func (r *run) noteWork(at *place.Place) (*door.WorkDir, error) {
	work := door.OpenWorkDir(r.work, at)
	if err := r.note(workNote, work.ID()); err != nil {
		work.Close()
		return nil, err
	}
	return work, nil
}

// knownWork is noteWork for an agent that goes on. Without the note no directory is the one that it began in. The error is a fault of this host.
func (r *run) knownWork() (*door.WorkDir, error) {
	noted, err := supervisor.ReadFile(r.control(), workNote, 64)
	if hostfault.Is(err) {
		return nil, err
	}
	return door.KnownWorkDir(r.work, string(noted)), nil
}

// openDoor lets the agent of an attempt talk to this spoke, until [Spoke.shutDoor]. The working directory goes with the door.
func (s *Spoke) openDoor(r *run, work *door.WorkDir) error {
	if r.door != nil { // of a start that failed half way
		r.door.Close()
	}
	removeDrafts(checkpointDir(s.Dir, r.fence.Task))
	var bars func(pid int) bool
	if r.user.ID == 0 { // else its socket is its user's alone
		marker := s.marker(r.fence)
		bars = func(pid int) bool { return supervisor.OfAnother(pid, marker) }
	}
	d, err := door.Open(r.own().Door, int(r.user.ID), door.Room{Bars: bars, Backlog: s.backlog, Fence: r.fence, Deadline: r.until,
		Hide:     supervisor.Redacting(r.secrets),
		KeepData: func(ctx context.Context, data io.Reader) (time.Time, error) { return s.keepData(ctx, r, data) },
		KeepSession: func(ctx context.Context, id string) (time.Time, error) {
			return s.backlog.KeepCheckpoint(ctx, r.fence, backlog.Checkpoint{Session: &id})
		},
		Heard: func() { r.signs.note(commands.SignHeartbeat, now()) },
		Work:  work, Ending: func() { s.live.ending(r) },
		Messages: s.messages, Workspace: cmp.Or(r.asker, backlog.MainWorkspace),
		News: s.news.next, Progressed: func(step backlog.Step) { s.live.progressed(r, step) }})
	if err != nil {
		return &supervisor.StartError{Reason: supervisor.HostFault, Text: err.Error()}
	}
	r.door = d
	return nil
}

// reopenDoor is openDoor for an agent that goes on. One without a door works on; so does one whose secrets are not known any more. A fault of
// this host passes, and the policy may be another one later: it is tried again until the agent ends. What it returns waits for that.
func (s *Spoke) reopenDoor(ctx context.Context, r *run, agent *supervisor.Agent) (wait func()) {
	var again sync.WaitGroup
	if timeout := s.Policy.Now().Timeout(r.spec.Timeout()); timeout > 0 && r.since != 0 {
		r.until = time.Now().Add(timeout - supervisor.Boottime().Sub(r.since))
	}
	order, err := s.orderOf(ctx, r)
	if err != nil { // the agent is left
		return again.Wait
	}
	r.spec, r.outline, r.work = order, false, cmp.Or(order.Dir, r.own().Work)
	if err := s.reopenDoorOnce(r); err != nil {
		again.Go(func() { s.reopenDoorLater(ctx, r, agent, err) })
	}
	return again.Wait
}

// reopenDoorLater tries what has failed again, and says what it fails by when that is new.
func (s *Spoke) reopenDoorLater(ctx context.Context, r *run, agent *supervisor.Agent, err error) {
	said, pause := "", 100*time.Millisecond
	for ; err != nil; err = s.reopenDoorOnce(r) {
		if text := err.Error(); text != said {
			said = text
			s.Log.ErrorContext(ctx, "an agent that goes on cannot talk to this spoke; it runs on without, and it is tried again", "id", r.fence.Task, "attempt", r.fence.Attempt, "err", err)
		}
		if !runsFor(ctx, r, agent, pause) {
			return
		}
		pause = min(2*pause, 5*time.Second)
	}
	s.Log.InfoContext(ctx, "an agent that goes on can talk to this spoke again", "id", r.fence.Task, "attempt", r.fence.Attempt)
}

func (s *Spoke) reopenDoorOnce(r *run) error {
	if err := s.recallSecrets(r); err != nil {
		return err
	}
	work, err := r.knownWork()
	if err != nil {
		return err
	}
	return s.openDoor(r, work)
}

// recallSecrets finds out what the agent of an attempt that goes on must not say.
func (s *Spoke) recallSecrets(r *run) error {
	env, err := s.environmentOf(r)
	if err != nil {
		return fmt.Errorf("opening the values of its order: %w", err)
	}
	command := s.Policy.Now().Exec(&r.spec, env.vars)
	if len(command.Argv) == 0 { // its values are in the entry that is not found
		return errors.New("no entry of the policy allows its program now, or it cannot be looked for: what it must not say is not known")
	}
	r.secrets = runtime.Forms(append(command.Secrets, env.secrets...))
	return nil
}

// shutDoor ends the talk with an agent. Of one that is over nothing of the door stays.
func (s *Spoke) shutDoor(r *run) {
	if r.door != nil {
		r.door.Close()
	}
	if r.over {
		s.removeDoor(r.dir)
	}
}

// removeDoor removes the door of an attempt that is over. As with secrets, nothing outside of the attempt's directory
// is touched.
func (s *Spoke) removeDoor(dir string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return // it has no directory
	}
	defer root.Close()
	if err := root.RemoveAll(doorDir); err != nil {
		s.Log.Warn("removing the socket of an attempt that is over; it goes with its directory", "directory", dir, "err", err)
	}
}

// progressed notes what an agent has said of its progress. Of an attempt the highest count is the newest.
func (l *live) progressed(r *run, step backlog.Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.said == nil || step.N > r.said.N { // and no times: a clock that is set back counts again what was
		r.said = &step
	}
	r.signs.note(commands.SignProgress, now())
}

// ending notes that an agent says something of its own end.
func (l *live) ending(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.worded = true
}

// wordOf is what the agent of an attempt has said of its own end; nil = nothing. The database says which word was the last, also
// where its answer was lost. Where that cannot be found out, the end is told without.
func (s *Spoke) wordOf(ctx context.Context, r *run) *commands.Word {
	s.live.mu.Lock()
	worded := r.worded
	s.live.mu.Unlock()
	if !worded && !r.before {
		return nil
	}
	w, err := s.backlog.LastWord(ctx, r.fence)
	if err != nil {
		s.Log.ErrorContext(ctx, "looking for what an agent said of its end; its result is told without", "id", r.fence.Task, "attempt", r.fence.Attempt, "err", err)
	}
	return w
}

// saidOf is what the agent of a task has said of its progress last; nil = nothing, or none is live.
func (l *live) saidOf(task string) *commands.AgentProgress {
	r := l.get(task)
	if r == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.said == nil {
		return nil
	}
	return &commands.AgentProgress{Progress: r.said.Progress, At: r.said.At.UnixMilli()}
}

// recallSteps notes what agents that go on have said to an earlier process.
func (s *Spoke) recallSteps(ctx context.Context) error {
	last, err := s.backlog.LastSteps(ctx, s.owner())
	if err != nil {
		return fmt.Errorf("looking for what agents have said: %w", err)
	}
	for _, r := range s.live.list() {
		if step, said := last[r.fence.Task]; said && step.Attempt == r.fence.Attempt {
			s.live.progressed(r, step)
		}
	}
	return nil
}

// beatOf is what an agent has said last, for a heartbeat; nil = nothing.
func beatOf(step *backlog.Step) *commands.AgentProgress {
	if step == nil {
		return nil
	}
	p := commands.AgentProgress{Progress: step.Progress, At: step.At.UnixMilli()}.Brief()
	return &p
}
