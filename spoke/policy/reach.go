package policy

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
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
	r := Reach{
		Confined:    p.isolationInWords(s, level),
		Files:       p.filesInWords(s, level),
		Network:     p.networkInWords(level),
		Directories: p.Directories,
		Environment: p.Environment,
		HostEnv:     slices.Sorted(maps.Keys(e.Host)),
		Secrets:     p.secretFiles(dir, c),
		Shell:       c.Shell(),
		Limits:      p.limitsInWords(level),
	}
	if limit := p.Timeout(0); limit > 0 {
		r.Timeout = limit.String()
	}
	if p.held != nil {
		r.Isolation = level
	}
	e.Dir = s.Dir
	r.Program, r.Missing = e.Startable()
	r.Missing = cmp.Or(r.Missing, unusable(s.Dir, level), unreachable(r.Program, level))
	return r
}

// secretFiles are the files of variables that the agents of c are given.
func (p *Policy) secretFiles(dir string, c Command) (list []string) {
	for _, name := range []string{p.EnvFromFile, c.EnvFromFile} {
		if name != "" && !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if name != "" && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// Words are the reach for people, a line for each.
func (r Reach) Words() []string {
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
		"variables of every agent: HOME, LANG, PATH, TMPDIR, and SPAWNMESH_ATTEMPT, SPAWNMESH_MARKER, SPAWNMESH_TASK; TRACEPARENT where its order belongs to a trace",
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
