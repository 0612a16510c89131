package spoke

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// leastLook is the least time between two looks at what an agent has used: the kernel counts in hundredths of a second.
const leastLook = time.Second

// signs are what an agent was seen to do last. They are looked for when somebody asks, which a heartbeat does too.
type signs struct {
	mu     sync.Mutex // guards the rest
	sign   commands.Sign
	at     moment
	cpu    time.Duration // used, when it was
	looked moment        // at
}

// A moment is an instant, and how long the host had slept until then.
type moment struct {
	at    supervisor.Instant
	slept time.Duration
}

func now() moment { return moment{supervisor.Boottime(), supervisor.Slept()} }

// note takes in a sign, unless a newer one is known.
func (g *signs) note(sign commands.Sign, at moment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sign == "" || at.at >= g.at.at {
		g.sign, g.at = sign, at
	}
}

// used takes in how much of a processor an agent has used until now. A hundredth of one since the last look is a sign.
func (g *signs) used(cpu time.Duration, at moment) {
	g.mu.Lock()
	since := at.at.Sub(g.looked.at)
	works := g.looked.at != 0 && cpu-g.cpu >= since/100
	if g.looked.at == 0 || since >= leastLook {
		g.cpu, g.looked = cpu, at
	}
	g.mu.Unlock()
	if works && since >= leastLook {
		g.note(commands.SignCPU, at)
	}
}

// last is the newest sign, how long ago it was without what the host slept, and how long that was.
func (g *signs) last(at moment) (sign commands.Sign, idle, slept time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sign == "" {
		return "", 0, 0
	}
	slept = max(0, at.slept-g.at.slept)
	return g.sign, max(0, at.at.Sub(g.at.at)-slept), slept
}

// look looks at what an agent takes, and for signs of it.
func (r *run) look(agent *supervisor.Agent) (u supervisor.Usage) {
	u, err := agent.Usage()
	at := now()
	if err == nil {
		r.signs.used(u.CPU, at)
	}
	for _, stream := range []supervisor.Stream{supervisor.Stdout, supervisor.Stderr} {
		info, err := os.Lstat(filepath.Join(r.control(), string(stream)))
		if err != nil || info.Size() == 0 {
			continue
		}
		since := max(0, time.Since(info.ModTime()))
		r.signs.note(commands.SignOutput, moment{at.at - supervisor.Instant(since), at.slept})
	}
	return u
}

// A pulse is how an agent that is live here stands at the moment of asking.
type pulse struct {
	usage supervisor.Usage
	sign  commands.Sign
	idle  time.Duration
	slept time.Duration
	// overrun says that it runs longer than estimated, and was warned of.
	overrun bool
}

// pulseOf looks at the agent of a task; false where none is live.
func (l *live) pulseOf(task string) (p pulse, ok bool) {
	r := l.get(task)
	if r == nil {
		return p, false
	}
	return l.pulse(r), true
}

// runs reports whether the agent of a task runs, and whether an earlier process of this spoke has started it.
func (l *live) runs(task string) (runs, adopted bool) {
	if l == nil { // no spoke runs
		return false, false
	}
	r := l.get(task)
	if r == nil {
		return false, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.agent != nil, r.adopted
}

func (l *live) pulse(r *run) (p pulse) {
	if agent := l.agentOf(r); agent != nil {
		p.usage = r.look(agent)
	}
	p.sign, p.idle, p.slept = r.signs.last(now())
	p.overrun = r.overrun.warned.Load()
	return p
}
