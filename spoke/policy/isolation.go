package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Isolation is what the host decides about what agents reach of it.
type Isolation struct {
	Isolation       string   `yaml:"isolation,omitempty" json:"isolation,omitempty"`                 // one of commands.IsolationLevels; "" = the strongest that holds
	MinIsolation    string   `yaml:"min_isolation,omitempty" json:"min_isolation,omitempty"`         // no agent starts below it
	AllowRootAgents bool     `yaml:"allow_root_agents,omitempty" json:"allow_root_agents,omitempty"` // a spoke that is root may run agents as root
	AgentUsers      int64    `yaml:"agent_users,omitempty" json:"agent_users,omitempty"`             // the first of 4096 users for agents; 0 = some that are free
	ReadPaths       []string `yaml:"read_paths,omitempty" json:"read_paths,omitempty"`               // what agents may read besides the system, under Landlock
	WritePaths      []string `yaml:"write_paths,omitempty" json:"write_paths,omitempty"`             // what they may write besides their own
	ConnectPorts    *[]int64 `yaml:"connect_ports,omitempty" json:"connect_ports,omitempty"`         // TCP ports that they may connect to; absent = any
}

// Held is what this host was found to hold.
type Held interface {
	// Fault says why a level does not hold, nil when it does.
	Fault(level string) error
	// Root reports whether an agent without a user of its own would be root.
	Root() bool
}

// Found is what a spoke has found its host to hold, for whoever asks it.
type Found struct {
	AsRoot bool              `json:"root,omitempty"`   // an agent without a user of its own would be root
	Faults map[string]string `json:"faults,omitempty"` // of the levels that do not hold, why
}

// FoundOf puts down what held says of all levels.
func FoundOf(held Held) Found {
	f := Found{AsRoot: held.Root(), Faults: map[string]string{}}
	for _, level := range commands.IsolationLevels {
		if err := held.Fault(level); err != nil {
			f.Faults[level] = err.Error()
		}
	}
	return f
}

// Fault is as in [Held].
func (f Found) Fault(level string) error {
	if why, ok := f.Faults[level]; ok {
		return errors.New(why)
	}
	return nil
}

// Root is as in [Held].
func (f Found) Root() bool { return f.AsRoot }

// On returns p as it holds on a host that was looked at.
func (p *Policy) On(held Held) *Policy {
	on := *p
	on.held = held
	return &on
}

// strongest are the levels in the order in which one is taken.
var strongest = []string{commands.IsolationUserLandlock, commands.IsolationUser, commands.IsolationLandlock}

// bubbles are the levels that are taken for orders that ask for a bubble.
var bubbles = []string{commands.IsolationUserBubble, commands.IsolationBubble}

func (p *Policy) checkIsolation() *problem {
	for name, level := range map[string]string{"isolation": p.Isolation.Isolation, "min_isolation": p.MinIsolation} {
		if level != "" && !slices.Contains(commands.IsolationLevels, level) {
			return wrong("$."+name, "%s %q is not known; write one of %s", name, level, strings.Join(commands.IsolationLevels, ", "))
		}
	}
	if p.AgentUsers < 0 || p.AgentUsers > 1<<32-1-4096 {
		return wrong("$.agent_users", "agent_users %d is not the first of 4096 users; write one such as 1879048192", p.AgentUsers)
	}
	for name, list := range map[string][]string{"read_paths": p.ReadPaths, "write_paths": p.WritePaths} {
		for i, path := range list {
			if !filepath.IsAbs(path) {
				return wrong(entry(name, i), "%s has %q, which is not absolute; write the whole path", name, path)
			}
			if strings.Contains(path, "*") {
				return wrong(entry(name, i), "%s has %q, with a *, which stands for nothing in a path; a directory stands for all below it: %s", name, path, withoutPattern(path))
			}
		}
	}
	if p.ConnectPorts != nil {
		for i, port := range *p.ConnectPorts {
			if port < 1 || port > 65535 {
				return wrong(entry("connect_ports", i), "connect_ports has %d; a port is from 1 to 65535", port)
			}
		}
	}
	return p.checkCapabilities()
}

// checkCapabilities refuses what no claim and no heartbeat can carry.
func (p *Policy) checkCapabilities() *problem {
	bytes := 0
	for i, c := range p.Capabilities {
		if _, ok := commands.IsolationBy(c); ok {
			return wrong(entry("capabilities", i), "capability %q is offered by itself where it holds; remove it here, and see isolation", c)
		}
		if c == commands.InlineFiles {
			return wrong(entry("capabilities", i), "capability %q is offered by itself; remove it here, and write inline_files: true", c)
		}
		if c == commands.InputsTaken {
			return wrong(entry("capabilities", i), "capability %q is offered by itself; remove it here, and write max_input_bytes: 1GiB", c)
		}
		if c == commands.ReviewTaken {
			return wrong(entry("capabilities", i), "capability %q is offered by itself; remove it here", c)
		}
		if commands.CheckCapability(c) != nil {
			return wrong(entry("capabilities", i), "capability %q is not a name of 1 to 64 letters, digits and . _ : / + -", commands.Clip(c))
		}
		bytes += len(c)
	}
	if n := len(p.Capabilities); n > commands.OwnCapabilities || bytes > commands.OwnCapabilityBytes {
		return wrong("capabilities", "%d capabilities of %d bytes together; a spoke may name %d of %d", n, bytes, commands.OwnCapabilities, commands.OwnCapabilityBytes)
	}
	return nil
}

// Level is what agents are confined by on this host, or why none may start. Before the host
// was looked at it is what the policy names, "" for nothing.
func (p *Policy) Level() (string, error) {
	if p.held == nil {
		return p.Isolation.Isolation, nil
	}
	level, err := p.level()
	if err == nil && !commands.MeetsIsolation(level, p.MinIsolation) {
		err = fmt.Errorf("min_isolation is %s, and agents would be confined by %s", p.MinIsolation, level)
	}
	return level, err
}

func (p *Policy) level() (string, error) {
	if named := p.Isolation.Isolation; named != "" {
		if named == commands.IsolationNone && p.held.Root() && !p.AllowRootAgents {
			return "", errors.New("with isolation none agents would be root; leave isolation out, or write allow_root_agents: true if that is meant")
		}
		err := p.fault(named)
		if _, ours := errors.AsType[*exposed](err); ours {
			return "", err
		}
		if err != nil {
			return "", fmt.Errorf("isolation %s does not hold on this host: %w", named, err)
		}
		return named, nil
	}
	var why []string
	for _, level := range strongest {
		err := p.fault(level)
		if err == nil {
			return level, nil
		}
		if _, ours := errors.AsType[*exposed](err); ours {
			return "", err // the level holds
		}
		why = append(why, level+": "+err.Error())
	}
	return "", fmt.Errorf("no level of isolation holds on this host (%s); mend that, or write isolation: none in the policy to run agents as the spoke's own user", strings.Join(why, "; "))
}

func (p *Policy) fault(level string) error {
	if level == commands.IsolationNone {
		return nil
	}
	if commands.MeetsIsolation(level, commands.IsolationBubble) && p.ConnectPorts != nil && len(*p.ConnectPorts) > 0 {
		return errors.New("a bubble has the network of the host or none: leave connect_ports out, or write connect_ports: []")
	}
	if err := p.held.Fault(level); err != nil {
		return err
	}
	return p.checkOwn(level)
}

// LevelFor is what the agent of s is confined by, or why it may not start. It is that of all
// agents, unless s asks for a bubble and the policy names no level.
func (p *Policy) LevelFor(s *commands.Spawn) (string, error) {
	level, err := p.Level()
	demanded, ok := commands.IsolationDemanded(s.Capabilities)
	switch {
	case err != nil || p.held == nil:
		return level, err
	case !ok:
		return "", errors.New("no level confines an agent by all that its order demands")
	case commands.MeetsIsolation(level, demanded):
		return level, nil
	}
	if bubble := p.bubble(); commands.MeetsIsolation(bubble, demanded) {
		return bubble, nil
	}
	return "", fmt.Errorf("the order demands isolation %s, and the agent would be confined by %s", demanded, level)
}

// bubble is the level of those that ask for a bubble, "" where they get none.
func (p *Policy) bubble() string {
	for _, level := range bubbles {
		if p.Isolation.Isolation == "" && commands.MeetsIsolation(level, p.MinIsolation) && p.fault(level) == nil {
			return level
		}
	}
	return ""
}

// Bubble is the level of those that ask for a bubble, or why none gets one here.
func (p *Policy) Bubble() (string, error) {
	named, wanted := p.Isolation.Isolation, commands.IsolationBubble
	if p.held.Root() {
		wanted = commands.IsolationUserBubble
	}
	level := p.bubble()
	if commands.MeetsIsolation(named, commands.IsolationBubble) {
		level = named
	}
	err := p.fault(cmp.Or(level, wanted))
	switch {
	case err != nil:
		return "", err
	case level != "":
		return level, nil
	case named != "":
		return "", fmt.Errorf("the policy names isolation %s for all agents; leave it out to give a bubble to those that ask for one", named)
	}
	return "", fmt.Errorf("min_isolation is %s, and a bubble is less or something else", p.MinIsolation)
}

// Offers are the capabilities of this host: those that the policy names, that it takes files and inputs
// of an order, and what agents are confined by, or can be.
func (p *Policy) Offers() []string {
	offers := slices.Clone(p.Capabilities)
	for _, c := range p.profiles {
		offers = append(offers, c.Run.word(0))
	}
	if p.InlineFiles {
		offers = append(offers, commands.InlineFiles)
	}
	offers = append(offers, commands.ReviewTaken)
	if p.InputLimit() > 0 {
		offers = append(offers, commands.InputsTaken)
	}
	level, err := p.Level()
	if err != nil {
		return offers
	}
	offers = append(offers, commands.IsolationCapabilities(level)...)
	if p.held != nil && p.bubble() != "" {
		offers = append(offers, commands.IsolationCapabilities(commands.IsolationBubble)...)
	}
	return offers
}

// judgeIsolation refuses what could be started only with less than the policy demands.
func (p *Policy) judgeIsolation(s *commands.Spawn) *commands.Refused {
	if s.Runtime != commands.RuntimeExec {
		return nil
	}
	if _, err := p.LevelFor(s); err != nil {
		return commands.Refuse(commands.Capability, "this spoke cannot confine agents as its policy demands").
			Hinting("on its host, spawnmesh doctor says why")
	}
	return nil
}

// Paths are what the agent of an order reaches, under Landlock or in a bubble, beside its own
// directories and those of the system.
type Paths struct {
	Read, Write []string          // of the host, without symbolic links
	Dir         string            // that was opened for the order to run in, which it may write; "" = none
	Program     string            // that was opened for the order, which it may read; "" = none
	Names       map[string]string // by which name one was asked for, where that has links
	AnyPort     bool
	Ports       []int64
}

// Paths returns what the agent of s reaches at a level: what was opened of what it names, its host's
// home and programs, and what the policy lists, all without symbolic links. It fails where an
// agent would reach the data directory of the spoke by them.
func (p *Policy) Paths(s *commands.Spawn, level string, n *Named) (Paths, error) {
	r := Paths{Read: slices.Clone(p.ReadPaths), Write: slices.Clone(p.WritePaths), AnyPort: p.ConnectPorts == nil}
	if p.ConnectPorts != nil {
		r.Ports = *p.ConnectPorts
	}
	e := p.ExecNamed(s, nil, n)
	r.Read = append(r.Read, filepath.SplitList(e.Path)...)
	if home := e.Host["HOME"]; home != "" {
		r.Write = append(r.Write, home)
	}
	var names map[string]string
	r.Read, r.Names = p.resolve(r.Read)
	r.Write, names = p.resolve(r.Write)
	maps.Copy(r.Names, names)
	r.named(s, n)
	return r, p.checkPrivate(level, slices.Concat(r.Write, r.Read, n.paths()))
}

// named adds what was opened of what s names. Of a program no more is opened to its agent than a file that can be executed.
func (r *Paths) named(s *commands.Spawn, n *Named) {
	if n.Dir != nil {
		if r.Dir = n.Dir.Path(); r.Dir != s.Dir {
			r.Names[r.Dir] = s.Dir
		}
	}
	if n.Program != nil && n.Program.Runnable() {
		if r.Program = n.Program.Path(); r.Program != n.program {
			r.Names[r.Program] = n.program
		}
	}
}
