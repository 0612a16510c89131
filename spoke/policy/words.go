package policy

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// isolationInWords says what the agent of s is confined by, at a level.
func (p *Policy) isolationInWords(s *commands.Spawn, level string) string {
	if level != "" && p.held != nil {
		return level
	}
	asked := "the strongest level that holds is taken"
	if level != "" {
		asked = "the policy names " + level
	}
	if p.MinIsolation != "" {
		asked += ", and nothing starts below " + p.MinIsolation
	}
	if demanded, ok := commands.IsolationDemanded(s.Capabilities); ok && demanded != commands.IsolationNone {
		asked += "; the order demands " + demanded
	}
	return "not known, as no spoke runs here that has tried what this host holds; " + asked
}

// filesInWords says which files the agent of s can use at a level.
func (p *Policy) filesInWords(s *commands.Spawn, level string) string {
	if level == commands.IsolationNone {
		return fmt.Sprintf("all that user %d can read and write, the data directory among it: isolation is none", os.Geteuid())
	}
	n := p.OpenNamed(s)
	defer n.Close()
	paths, _ := p.Paths(s, level, n) // what is refused is not asked about
	text := "its own directories, and the system's as any user; "
	by := underLandlock(level)
	switch level {
	case commands.IsolationUser:
		return text + "what else every user of this host can use"
	case commands.IsolationBubble, commands.IsolationUserBubble:
		by = "in its bubble"
	}
	return text + by + " nothing else but, to write, " + cmp.Or(strings.Join(once(append(paths.Write, paths.Dir)), ", "), "nothing") + " and, to read, " + strings.Join(once(append(paths.Read, paths.Program)), ", ")
}

// once leaves out what is there before, as where /bin is a link, and PATH names its directory twice, and what is none.
func once(paths []string) (list []string) {
	for _, path := range paths {
		if path != "" && !slices.Contains(list, path) {
			list = append(list, path)
		}
	}
	return list
}

// networkInWords says what agents at a level can talk to.
func (p *Policy) networkInWords(level string) string {
	switch {
	case p.ConnectPorts == nil || level == commands.IsolationNone || level == commands.IsolationUser:
		return "all that this host can"
	case commands.MeetsIsolation(level, commands.IsolationBubble):
		return "nothing: its bubble has no network"
	}
	return fmt.Sprintf("%s the TCP ports %v; all else that this host can", underLandlock(level), *p.ConnectPorts)
}

func underLandlock(level string) string {
	if level == "" {
		return "under Landlock, if this host has it,"
	}
	return "under Landlock"
}

// limitsInWords says what bounds an agent at a level besides its time.
func (p *Policy) limitsInWords(level string) string {
	words := p.Limits.words()
	if p.Limits.Pids == "" && commands.MeetsIsolation(level, commands.IsolationUser) {
		words = "8192 processes, as it has a user of its own, " + words
	}
	return words
}
