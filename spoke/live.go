package spoke

import (
	"sync"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An attempt is one claim that this process works on.
type attempt struct {
	fence  backlog.Fence // as claimed; a kill's fence comes with the kill
	spec   commands.Spawn
	dir    string
	policy string // version that let it start; "" = not known
	before bool   // an earlier process of this spoke began it
	asked  backlog.Asked
	asker  string // the connection that asked for it
	state  commands.State
	begun  bool              // its agent had started: it is taken over, and lost where nothing of it is left
	bootID string            // run of the kernel that its agent was started in; "" = not known
	agent  *supervisor.Agent // nil until started
	kills  chan backlog.KillRun
	lost   chan struct{} // closed when the fence no longer holds
	leave  chan struct{} // closed when this process stops
}

// live is the set of attempts that this process works on.
type live struct {
	mu        sync.Mutex // guards byTask and the attempts' state and agent
	byTask    map[string]*attempt
	abandoned bool
}

func (l *live) add(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.kills, a.lost, a.leave = make(chan backlog.KillRun, 8), make(chan struct{}), make(chan struct{})
	l.byTask[a.fence.Task] = a
	if l.abandoned {
		close(a.leave)
	}
}

func (l *live) remove(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byTask[a.fence.Task] == a {
		delete(l.byTask, a.fence.Task)
	}
}

func (l *live) get(task string) *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byTask[task]
}

func (l *live) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byTask)
}

// countOf counts the attempts that conn asked for.
func (l *live) countOf(conn string) (n int) {
	for _, a := range l.list() {
		if a.asker == conn {
			n++
		}
	}
	return n
}

func (l *live) list() []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*attempt, 0, len(l.byTask))
	for _, a := range l.byTask {
		list = append(list, a)
	}
	return list
}

// asked returns the attempts that a hub has asked for.
func (l *live) asked() (fences []backlog.Fence) {
	for _, a := range l.list() {
		if a.asked.Command != "" {
			fences = append(fences, a.fence)
		}
	}
	return fences
}

func (l *live) running(a *attempt, agent *supervisor.Agent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.agent, a.state = agent, commands.Running
}

func (l *live) agentOf(a *attempt) *supervisor.Agent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return a.agent
}

// kill hands a kill to its attempt. Where there is none the attempt has just
// been claimed or has just ended: its own next write finds the kill.
func (l *live) kill(k backlog.KillRun) {
	if a := l.get(k.Fence.Task); a != nil {
		select {
		case a.kills <- k:
		default: // eight kills wait already
		}
	}
}

// lose tells an attempt that its fence no longer holds.
func (l *live) lose(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-a.lost:
	default:
		close(a.lost)
	}
}

// abandon lets every attempt's goroutine end while its agent goes on.
func (l *live) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abandoned = true
	for _, a := range l.byTask {
		close(a.leave)
	}
}

// letGo closes what connects this process with shims that go on.
func (l *live) letGo() {
	for _, a := range l.list() {
		if agent := l.agentOf(a); agent != nil {
			_ = agent.Close()
		}
	}
}

// beats describes the live attempts that conn asked for, for a heartbeat.
func (l *live) beats(conn string) []commands.AgentBeat {
	list := make([]commands.AgentBeat, 0)
	for _, a := range l.list() {
		if len(list) == commands.MaxBeatAgents {
			break
		}
		if a.asker != conn {
			continue
		}
		l.mu.Lock()
		b := commands.AgentBeat{Task: a.fence.Task, Attempt: a.fence.Attempt, State: a.state}
		agent := a.agent
		l.mu.Unlock()
		if agent != nil {
			if u, err := agent.Usage(); err == nil {
				b.RSS, b.CPUMS = u.RSS, u.CPU.Milliseconds()
			}
		}
		list = append(list, b)
	}
	return list
}
