package spoke

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/spoke/door"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// A run is one claim that this process works on.
type run struct {
	fence    backlog.Fence // as claimed; a kill's fence comes with the kill
	spec     commands.Spawn
	outline  bool          // the spec is the outline of a [backlog.OpenAttempt]: see orderOf
	estimate time.Duration // how long it is thought to take; 0 = nobody knows
	dir      string
	policy   string          // version that let it start; "" = not known
	level    string          // of isolation that it was started at; "" = not known
	user     supervisor.User // of its agent; zero = it has none of its own, or none yet
	former   int64           // that its agent was seen to have, of no range that this instance has now; 0 = none
	before   bool            // an earlier process of this spoke began it
	asked    backlog.Asked
	asker    string // the connection that asked for it
	state    commands.State
	begun    bool   // an earlier process had started its agent: that one is adopted; when nothing of it is found, the attempt is lost
	bootID   string // run of the kernel that its agent was started in; "" = not known
	shim     supervisor.Shim
	mine     atomic.Bool        // what its directory has is of who asked for it; false = that is another's, or is not known yet
	over     bool               // its end is recorded
	start    *backlog.Start     // to be recorded with its end; nil = it is recorded by itself
	found    bool               // its directory was there before it was claimed
	fault    error              // of this host, that kept that from being looked at
	forgot   bool               // the database may not know what was done to it: it was restored from a backup since its agent began
	later    bool               // an attempt after it has begun before that restore
	came     time.Time          // when it was added to what this process works on
	from     time.Time          // when this process asked for its claim; zero = an earlier one did
	ran      time.Time          // when its agent started, once it has ended; zero = it did not, or nobody knows
	since    supervisor.Instant // no later than its claim was; 0 = not known
	seen     time.Time          // when an earlier process last knew of its agent; zero = there was none
	until    time.Time          // when it is ended at the latest; zero = never, or not known
	work     string             // where its agent works
	secrets  []string           // that are taken out of what its agent says
	door     *door.Door         // nil until it is open
	keeps    sync.Mutex         // held while its agent's checkpoint changes: of two at once one would remove the file of the other
	said     *backlog.Step      // what its agent has said of its progress last; nil = nothing
	worded   bool               // its agent has said something of its own end, or has tried to, to this process
	agent    *supervisor.Agent  // nil until started
	adopted  bool               // an earlier process started it
	signs    signs              // of its agent
	overrun  overrun
	left     []supervisor.Survivor // of it where there is no agent to ask: nobody can end them yet
	kills    chan backlog.KillRun
	pausing  bool          // its agent is to stand still
	words    int           // how often that was said
	turned   wait.Signal   // sent when it was
	proven   chan struct{} // closed when its start is recorded, or could not be
	lost     chan struct{} // closed when the fence no longer holds
	leave    chan struct{} // closed when this process stops
}

// rest waits before something of an attempt is tried again, and reports false when that is left.
func (r *run) rest(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-r.leave:
		return false
	case <-time.After(pause):
		return true
	}
}

// live is the set of attempts that this process works on.
type live struct {
	mu        sync.Mutex // guards byTask and the attempts' state, agent, adopted, left, said, pausing and words, and the rest
	byTask    map[string]*run
	missed    map[string]missedPause // by task
	abandoned bool
	all       map[*run]bool              // also those whose task has a later one in byTask
	waiting   map[*run]chan backlog.Past // for what their hubs recall, without a process
	looking   bool                       // for what hubs recall
	ends      chan struct{}              // a place for each of those without a process whose end is being recorded: many may wait, and end at once
	recalls   wait.Signal                // sent when what they wait for may have come
	added     func()                     // called after each addition
}

// endsAtOnce bounds how many ends of attempts without a process are recorded at once, each with what it was ordered and what it has written last.
const endsAtOnce = 64

// newLive is a set without attempts.
func newLive(added func()) live {
	return live{byTask: map[string]*run{}, missed: map[string]missedPause{}, all: map[*run]bool{}, waiting: map[*run]chan backlog.Past{}, recalls: wait.NewSignal(), ends: make(chan struct{}, endsAtOnce), added: added}
}

func (l *live) add(r *run) {
	defer l.added()
	l.mu.Lock()
	defer l.mu.Unlock()
	r.kills, r.lost, r.leave, r.overrun.over = make(chan backlog.KillRun, 8), make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.came, r.turned, r.proven = time.Now(), wait.NewSignal(), make(chan struct{})
	l.byTask[r.fence.Task], l.all[r] = r, true
	if m, missed := l.missed[r.fence.Task]; missed {
		r.turnIf(m.PauseRun)
		delete(l.missed, r.fence.Task)
	}
	if l.abandoned {
		close(r.leave)
	}
}

func (l *live) remove(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, r)
	if l.byTask[r.fence.Task] == r {
		delete(l.byTask, r.fence.Task)
	}
}

// has reports whether an attempt is here, whoever's it is.
func (l *live) has(f backlog.Fence) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for here := range l.all {
		if here.fence.Task == f.Task && here.fence.Attempt == f.Attempt {
			return true
		}
	}
	return false
}

func (l *live) get(task string) *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byTask[task]
}

// count counts the slots in use: what waits for its hub to recall what became of it has no process, and takes none.
func (l *live) count() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.byTask {
		if l.waiting[r] == nil {
			n++
		}
	}
	return n
}

// isolationOf is what the agent of a task is confined by, "" where none is live.
func (l *live) isolationOf(task string) string {
	r := l.get(task)
	if r == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.agent == nil {
		return ""
	}
	return r.level
}

// survivorsOf are the processes of a task that do not end although they were killed.
func (l *live) survivorsOf(task string) []supervisor.Survivor {
	r := l.get(task)
	if r == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.agent != nil {
		return r.agent.Survivors()
	}
	return r.left
}

// remain notes what of an attempt does not end, or that nothing is left of it.
func (l *live) remain(r *run, left []supervisor.Survivor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.left = left
}

// countOf counts the attempts that conn asked for.
func (l *live) countOf(conn string) (n int) {
	for _, r := range l.list() {
		if r.asker == conn {
			n++
		}
	}
	return n
}

func (l *live) list() []*run {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*run, 0, len(l.byTask))
	for _, r := range l.byTask {
		list = append(list, r)
	}
	return list
}

// asked returns the attempts that a hub has asked for.
func (l *live) asked() (fences []backlog.Fence) {
	for _, r := range l.list() {
		if r.asked.Command != "" && r.mine.Load() {
			fences = append(fences, r.fence)
		}
	}
	return fences
}

func (l *live) running(r *run, agent *supervisor.Agent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.agent, r.state, r.adopted = agent, commands.Running, r.before
	r.signs.note(commands.SignStart, now())
}

func (l *live) agentOf(r *run) *supervisor.Agent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.agent
}

// kill hands a kill to its attempt. Where there is none the attempt has just
// been claimed or has just ended: its own next write finds the kill.
func (l *live) kill(k backlog.KillRun) {
	if k.Goes {
		l.pause(backlog.PauseRun{Fence: k.Fence})
		return
	}
	if r := l.get(k.Fence.Task); r != nil {
		select {
		case r.kills <- k:
		default: // eight kills wait already
		}
		l.recalls.Send() // it may wait for its hub
	}
}

// lose tells an attempt that its fence no longer holds.
func (l *live) lose(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.isLost() {
		close(r.lost)
	}
}

func (r *run) isLost() bool {
	select {
	case <-r.lost:
		return true
	default:
		return false
	}
}

// abandon lets every attempt's goroutine end while its agent goes on.
func (l *live) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abandoned = true
	for r := range l.all {
		close(r.leave)
	}
}

// letGo closes what connects this process with shims that go on.
func (l *live) letGo() {
	for _, r := range l.list() {
		if agent := l.agentOf(r); agent != nil {
			_ = agent.Close()
		}
	}
}

// beats describes the live attempts that conn asked for, for a heartbeat.
func (l *live) beats(conn string) []commands.AgentBeat {
	list, told := make([]commands.AgentBeat, 0), 0
	for _, r := range l.list() {
		if len(list) == commands.MaxBeatAgents {
			break
		}
		if r.asker != conn {
			continue
		}
		l.mu.Lock()
		b := commands.AgentBeat{Task: r.fence.Task, Attempt: r.fence.Attempt, State: r.state}
		if r.said != nil && told < commands.MaxBeatProgress {
			b.Progress, told = beatOf(r.said), told+1
		}
		l.mu.Unlock()
		p := l.pulse(r)
		b.RSS, b.CPUMS = p.usage.RSS, p.usage.CPU.Milliseconds()
		b.Sign, b.IdleMS, b.SleptMS = p.sign, p.idle.Milliseconds(), p.slept.Milliseconds()
		b.Overrun = p.overrun
		list = append(list, b)
	}
	return list
}
