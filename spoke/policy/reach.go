package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
)

// A Reach is what the agent of an allowed order can get at on this host.
type Reach struct {
	Program     string   `json:"program,omitempty"`      // what is started; "" = nothing
	Missing     string   `json:"missing,omitempty"`      // why Program cannot be started now
	Isolation   string   `json:"isolation,omitempty"`    // what it is confined by; "" = not known
	Confined    string   `json:"confined"`               // the same in words
	Files       string   `json:"files"`                  // which files it can use, in words
	Network     string   `json:"network"`                // what it can talk to, in words
	Directories []string `json:"directories,omitempty"`  // where orders may let it run, besides a fresh directory; "*" = anywhere
	Environment []string `json:"environment,omitempty"`  // names that orders may set; "*" = any but dangerous ones
	InlineFiles bool     `json:"inline_files,omitempty"` // orders may bring files and standard input
	Inputs      string   `json:"inputs,omitempty"`       // how much the inputs of an order may be together; "" = it may have none
	HostEnv     []string `json:"host_env,omitempty"`     // names of variables that the host sets
	Secrets     []string `json:"secret_files,omitempty"` // files whose values it is given
	Shell       string   `json:"as_a_shell,omitempty"`   // why its entry is as good as a shell
	Timeout     string   `json:"timeout,omitempty"`      // how long it may run
	Limits      string   `json:"other_limits,omitempty"` // what else bounds it, in words
}

// Reach puts together what the agent of s can get at, where the policy in dir allows s.
// Whatever confines agents is told here and nowhere else.
func (p *Policy) Reach(dir string, s *commands.Spawn) Reach {
	if s.Runtime != commands.RuntimeExec {
		return Reach{Confined: "nothing is started", Files: "none: nothing is started", Network: "none: nothing is started"}
	}
	c, _ := p.Match(s.Argv)
	e := p.Exec(s, nil)
	level, _ := p.LevelFor(s) // what is refused is not asked about
	r := p.reach(dir, s, level, c)
	r.Shell = p.Shell(c)
	e.Dir = s.Dir
	r.Program, r.Missing = e.Startable()
	r.Missing = cmp.Or(r.Missing, unusable(s.Dir, level), unreachable(r.Program, level))
	return r
}

// reach is what agents of s at a level can get at by some entries.
func (p *Policy) reach(dir string, s *commands.Spawn, level string, entries ...Command) Reach {
	r := Reach{
		Confined:    p.isolationInWords(s, level),
		Files:       p.filesInWords(s, level),
		Network:     p.networkInWords(level),
		Directories: p.Directories,
		Environment: p.Environment,
		InlineFiles: p.InlineFiles,
		Limits:      p.limitsInWords(level),
	}
	r.HostEnv, r.Secrets = p.given(dir, entries)
	if limit := p.Timeout(0); limit > 0 {
		r.Timeout = limit.String()
	}
	if limit := p.InputLimit(); limit > 0 {
		r.Inputs = commands.SizeText(limit)
	}
	if p.held != nil {
		r.Isolation = level
	}
	return r
}

var allowed = map[bool]string{true: "any", false: "none"}

func inputs(limit string) string {
	if limit == "" {
		return "none"
	}
	return "up to " + limit + " together"
}

// Words are the reach for people, a line for each.
func (r Reach) Words() []string {
	lines := r.Decided()
	return slices.Insert(lines, slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "variables of the host") }), "variables of every agent: "+runtime.OwnVariables())
}

// Decided are the words without what is the same under every policy.
func (r Reach) Decided() []string {
	list := func(names []string, none, all string) string {
		if slices.Contains(names, anything) {
			return all
		}
		return cmp.Or(strings.Join(names, ", "), none)
	}
	lines := []string{
		"starts: " + cmp.Or(r.Program, "nothing"),
		"isolation: " + r.Confined,
		"files: " + r.Files,
		"network: " + r.Network,
		"runs in: " + list(r.Directories, "a fresh directory only", "any directory that an order names"),
		"variables of an order: " + list(r.Environment, "none", "any but those that make programs run other code"),
		"files and standard input of an order: " + allowed[r.InlineFiles] + "; inputs, fetched from its hub: " + inputs(r.Inputs),
		"variables of the host: " + list(r.HostEnv, "none", ""),
		"secrets: " + list(r.Secrets, "no file of variables", ""),
		"time: " + cmp.Or(r.Timeout, "without end"),
		"other limits: " + cmp.Or(r.Limits, "none"),
	}
	if r.Shell != "" {
		lines = append(lines, "as good as a shell: "+r.Shell)
	}
	return lines
}
