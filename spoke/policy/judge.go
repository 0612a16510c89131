package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/hostfault"
	"github.com/spawnmesh/spawnmesh/spoke/place"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
)

// Judge returns why s may not run here with the values env of its variables, nil when it
// may. The reasons name what
// would have to be allowed, and neither what else is allowed nor any value of
// the environment: they are told to the hub.
func (p *Policy) Judge(s *commands.Spawn, env map[string]string) *commands.Refused {
	n := p.OpenNamed(s)
	defer n.Close()
	return p.JudgeNamed(s, env, n)
}

// JudgeNamed is Judge of an order that is about to start: it may run with what was opened for it, and with nothing else
// that may be at the same paths.
func (p *Policy) JudgeNamed(s *commands.Spawn, env map[string]string, n *Named) *commands.Refused {
	dir := func(s *commands.Spawn) *commands.Refused { return p.judgeDir(s, n) }
	paths := func(s *commands.Spawn) *commands.Refused { return p.judgePaths(s, n) }
	command := func(s *commands.Spawn) *commands.Refused { return p.judgeCommand(s, n) }
	for _, rule := range []func(*commands.Spawn) *commands.Refused{p.judgeRuntime, command, dir, p.judgeNames, p.judgeInline, p.judgeInputs, p.judgeCapabilities, p.judgeIsolation, paths} {
		if r := rule(s); r != nil {
			return r
		}
	}
	return p.judgeEnv(s, env, n)
}

// Foresee is Judge for the host that asks, who may know all: it is told why agents cannot be
// confined. Where the host was not looked at, only a level that the policy names decides that.
func (p *Policy) Foresee(s *commands.Spawn, env map[string]string) *commands.Refused {
	ask := *s
	ask.Capabilities = slices.DeleteFunc(slices.Clone(s.Capabilities), func(c string) bool {
		_, ok := commands.IsolationBy(c)
		return ok
	})
	if p.held == nil && p.Isolation.Isolation == "" {
		return p.Judge(&ask, env)
	}
	r := p.Judge(s, env)
	if _, err := p.LevelFor(s); r != nil && r.Code == commands.Capability && err != nil && p.judgeCapabilities(&ask) == nil {
		r.Hint = err.Error()
	}
	return r
}

// Runs reports whether any order of a runtime may run here.
func (p *Policy) Runs(runtime string) bool {
	return slices.Contains(p.Runtimes, runtime) && (runtime != commands.RuntimeExec || len(p.entries()) > 0)
}

func (p *Policy) judgeRuntime(s *commands.Spawn) *commands.Refused {
	if slices.Contains(p.Runtimes, s.Runtime) {
		return nil
	}
	return commands.Refuse(commands.Policy, "runtime %s is not allowed on this spoke", s.Runtime).
		Hinting("its host can allow it under runtimes in policy.yaml")
}

// Unopened refuses an order that a fault of this host keeps from being judged, in words that are the same whatever there is at its paths.
func Unopened() *commands.Refused {
	return commands.Refuse(commands.BadPath, "the directory or the program of this order cannot be opened on this spoke now").
		Hinting("its host can say why; order it again later, or from another spoke")
}

func (p *Policy) judgeCommand(s *commands.Spawn, n *Named) *commands.Refused {
	if s.Runtime != commands.RuntimeExec {
		return nil
	}
	if n.unmatched != nil {
		return Unopened()
	}
	if n.matched {
		return nil
	}
	if namesProfile(s.Argv) {
		return commands.Refuse(commands.Policy, "there is no %s on this spoke, or more was named than the profile", commands.Clip(s.Argv[0])).
			Hinting("its host can write it: spawnmesh spoke profiles add PRESET")
	}
	return commands.Refuse(commands.Policy, "command %q is not allowed on this spoke with these arguments", filepath.Base(s.Argv[0])).
		Hinting("its host can allow it under commands in policy.yaml; on the host, spawnmesh spoke policy test says why")
}

func (p *Policy) judgeDir(s *commands.Spawn, n *Named) *commands.Refused {
	if s.Dir == "" {
		return nil
	}
	if !filepath.IsAbs(s.Dir) {
		return commands.Refuse(commands.BadPath, "directory %q is not an absolute path", s.Dir).Hinting("write the whole path, from /")
	}
	if short := filepath.Clean(s.Dir); short != s.Dir {
		return commands.Refuse(commands.BadPath, "directory %q is not written in its shortest form", s.Dir).Hinting("write %s", short)
	}
	if slices.Contains(p.Directories, anything) {
		return nil
	}
	// A symbolic link must not lead out of what is allowed, whoever puts it there, and when.
	if n.Dir != nil && p.inDirectories(n.Dir.Path()) {
		return nil
	}
	// One sentence for both: no hub learns what there is on this host.
	return commands.Refuse(commands.BadPath, "directory %s is not allowed on this spoke, or there is no such directory", s.Dir).
		Hinting("its host can make it, and allow it under directories in policy.yaml; without one the agent gets a fresh directory")
}

// inDirectories reports whether a path without symbolic links is one of those that are allowed, or below one.
func (p *Policy) inDirectories(real string) bool {
	return slices.ContainsFunc(p.Directories, func(d string) bool {
		return d == anything || under(real, d)
	})
}

// ExplainDir says, for the host alone, what the refusal of the directory of s leaves out: where its links lead, or that it
// is none. "" where there is nothing to add.
func (p *Policy) ExplainDir(s *commands.Spawn) string {
	if !filepath.IsAbs(s.Dir) || filepath.Clean(s.Dir) != s.Dir || slices.Contains(p.Directories, anything) {
		return ""
	}
	dir, err := place.OpenDir(s.Dir)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return s.Dir + " is no directory"
	case errors.Is(err, fs.ErrNotExist):
		return "there is no directory " + s.Dir
	case err != nil:
		return fmt.Sprintf("%s cannot be opened: %v", s.Dir, err)
	}
	defer dir.Close()
	if real := dir.Path(); real != s.Dir && !p.inDirectories(real) {
		return fmt.Sprintf("%s leads to %s, which is not allowed", s.Dir, real)
	}
	return ""
}

// judgePaths refuses an order whose agent would reach the spoke's own files by what it asks for.
func (p *Policy) judgePaths(s *commands.Spawn, n *Named) *commands.Refused {
	level, err := p.LevelFor(s)
	if err != nil || s.Runtime != commands.RuntimeExec {
		return nil
	}
	if err := p.checkPrivate(level, n.paths()); err != nil && !hostfault.Is(err) { // else it is asked again when the agent is to start
		return commands.Refuse(commands.BadPath, "%v", err).
			Hinting("name a directory beside it; without one the agent gets a fresh directory")
	}
	return nil
}

// namesFor are the names of variables that an order may set.
func (p *Policy) namesFor(s *commands.Spawn) []string {
	if namesProfile(s.Argv) {
		for _, c := range p.profiles {
			if c.Run.word(0) == s.Argv[0] {
				return slices.Concat(p.Environment, c.profile.Environment)
			}
		}
	}
	return p.Environment
}

func (p *Policy) judgeNames(s *commands.Spawn) *commands.Refused {
	names := p.namesFor(s)
	for _, e := range s.Env {
		if !slices.Contains(names, e.Name) && !slices.Contains(names, anything) {
			return commands.Refuse(commands.Policy, "environment variable %s is not allowed on this spoke", e.Name).
				Hinting("its host can allow it under environment in policy.yaml")
		}
	}
	return nil
}

// judgeInline: what an order brings a program reads, or runs, which would else find an empty directory and no input.
func (p *Policy) judgeInline(s *commands.Spawn) *commands.Refused {
	if p.InlineFiles || !s.Inline() {
		return nil
	}
	return commands.Refuse(commands.Policy, "files and standard input of an order are not allowed on this spoke").
		Hinting("its host can allow them with inline_files: true in policy.yaml")
}

// judgeInputs: a program finds them as it does files of the order, and they take the host's disk.
func (p *Policy) judgeInputs(s *commands.Spawn) *commands.Refused {
	limit, total := p.InputLimit(), s.InputBytes()
	switch {
	case len(s.Inputs) == 0 || limit > 0 && total <= limit:
		return nil
	case limit == 0:
		return commands.Refuse(commands.Policy, "inputs of an order are not allowed on this spoke").
			Hinting("its host can allow them with max_input_bytes in policy.yaml")
	}
	return commands.Refuse(commands.InputTooLarge, "the inputs of the order are %s together, which is more than this spoke takes", commands.SizeText(total)).
		Hinting("its host can take more with max_input_bytes in policy.yaml")
}

func (p *Policy) judgeEnv(s *commands.Spawn, env map[string]string, n *Named) *commands.Refused {
	// Names that make programs run other code must be allowed one by one.
	err := p.ExecNamed(s, env, n).Check()
	r, ok := errors.AsType[*runtime.Refusal](err)
	switch {
	case err == nil:
		return nil
	case ok && r.Reason == runtime.Policy:
		return commands.Refuse(commands.Policy, "%s", r.Text).Hinting("its host can allow it by its full name under environment in policy.yaml")
	}
	return commands.Refuse(commands.BadEnv, "%v", err)
}

func (p *Policy) judgeCapabilities(s *commands.Spawn) *commands.Refused {
	for _, c := range s.Capabilities {
		if !slices.Contains(p.Offers(), c) {
			if by, ok := commands.IsolationBy(c); ok {
				return commands.Refuse(commands.Capability, "this spoke does not confine agents by %s", by).
					Hinting("on its host, spawnmesh doctor says what they are confined by")
			}
			return commands.Refuse(commands.Capability, "this spoke does not have capability %s", c).
				Hinting("its host can offer it under capabilities in policy.yaml")
		}
	}
	return nil
}
