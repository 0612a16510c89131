package spoke

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
)

// A Policy says what may run on this host. Only this file decides; no message
// changes it. What it does not allow is refused.
type Policy struct {
	Version      int          `yaml:"version" json:"version"`           // 1
	Runtimes     []string     `yaml:"runtimes" json:"runtimes"`         // exec, noop
	Commands     []string     `yaml:"commands" json:"commands"`         // "go test", "/usr/bin/make", or "*"
	Directories  []string     `yaml:"directories" json:"directories"`   // where agents may be asked to run, or "*"; a fresh one is always allowed
	Environment  []string     `yaml:"environment" json:"environment"`   // names a hub may set
	Path         string       `yaml:"path" json:"path"`                 // PATH of agents, and where command names are looked up
	Capabilities []string     `yaml:"capabilities" json:"capabilities"` // what this host offers to be matched with
	Limits       PolicyLimits `yaml:"limits" json:"limits"`
}

// PolicyLimits bound every agent.
type PolicyLimits struct {
	Timeout string `yaml:"timeout" json:"timeout"` // longest run, "24h"; empty for none
	Output  int64  `yaml:"output" json:"output"`   // bytes kept of each output stream; 0 means 16 MiB
}

// DefaultPath is the PATH of agents when the policy names none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// anything as an entry allows all.
const anything = "*"

const maxPolicy = 1 << 20

// PolicyFile returns where the policy of the instance in dir is.
func PolicyFile(dir string) string { return filepath.Join(dir, "policy.yaml") }

// Presets are policies to begin with, as files with comments.
var Presets = map[string]string{
	"deny": `# What may run on this host. Nothing may, until you allow it here.
version: 1
runtimes: []
commands: []
directories: []
environment: []
capabilities: []
limits:
  timeout: 24h
`,
	"commands": `# What may run on this host: the commands below, with any further arguments.
version: 1
runtimes: [exec, noop]
commands:
  - echo
  - go test
  - go vet
directories: []        # where a hub may ask an agent to run; without one it gets a fresh directory
environment: [CI, LANG]
capabilities: []       # such as: [go, gpu]
limits:
  timeout: 24h
`,
	"open": `# What may run on this host: anything. Use it only where the hub's operator is you.
version: 1
runtimes: [exec, noop]
commands: ["*"]
directories: ["*"]
environment: ["*"]
capabilities: []
limits:
  timeout: 24h
`,
}

// LoadPolicy reads the policy of the instance in dir. Without a file nothing is
// allowed. A file that others could have written is refused, and so is one that
// says anything this version does not know.
func LoadPolicy(dir string) (*Policy, error) {
	path := PolicyFile(dir)
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return ParsePolicy([]byte(Presets["deny"]))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("policy %s can be written by others; run: chmod 644 %s", path, path)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxPolicy+1))
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	p, err := ParsePolicy(raw)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", path, err)
	}
	return p, nil
}

// ParsePolicy reads a policy; errors name the line.
func ParsePolicy(raw []byte) (*Policy, error) {
	if len(raw) > maxPolicy {
		return nil, fmt.Errorf("is larger than %d bytes", maxPolicy)
	}
	var p Policy
	dec := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict())
	if err := decode(dec, &p); err != nil && err != io.EOF {
		return nil, err
	}
	if err := decode(dec, &Policy{}); err != io.EOF {
		return nil, errors.New("has a second document; write everything into one")
	}
	if p.Version != 1 {
		return nil, fmt.Errorf("version is %d; this program knows version 1", p.Version)
	}
	if p.Path == "" {
		p.Path = DefaultPath
	}
	if _, err := p.timeout(); err != nil {
		return nil, err
	}
	if p.Limits.Output < 0 {
		return nil, fmt.Errorf("limits.output %d is negative", p.Limits.Output)
	}
	for _, r := range p.Runtimes {
		if r != commands.RuntimeExec && r != commands.RuntimeNoop {
			return nil, fmt.Errorf("runtime %q is not known; there are exec and noop", r)
		}
	}
	for i, d := range p.Directories {
		if d != anything && !filepath.IsAbs(d) {
			return nil, fmt.Errorf("directory %q is not absolute", d)
		}
		p.Directories[i] = filepath.Clean(d) // what is asked for is in this form too
	}
	return &p, nil
}

// decode reads one document. The library panics on some texts that are none; to
// the host that is one more thing to correct in the file.
func decode(dec *yaml.Decoder, p *Policy) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be read as YAML: %v", r)
		}
	}()
	return dec.Decode(p)
}

func (p *Policy) timeout() (time.Duration, error) {
	if p.Limits.Timeout == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(p.Limits.Timeout)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("limits.timeout %q is not a duration such as 90s or 24h", p.Limits.Timeout)
	}
	return d, nil
}

// Timeout returns how long an agent that asked for asked may run; 0 for ever.
func (p *Policy) Timeout(asked time.Duration) time.Duration {
	limit, _ := p.timeout()
	if limit == 0 || asked > 0 && asked < limit {
		return asked
	}
	return limit
}

// Judge returns why s may not run here, nil when it may. The reasons name what
// would have to be allowed, and no value of the environment.
func (p *Policy) Judge(s *commands.Spawn) *commands.Refused {
	for _, rule := range []func(*commands.Spawn) *commands.Refused{p.judgeRuntime, p.judgeCommand, p.judgeDir, p.judgeEnv, p.judgeCapabilities} {
		if r := rule(s); r != nil {
			return r
		}
	}
	return nil
}

func (p *Policy) judgeRuntime(s *commands.Spawn) *commands.Refused {
	if slices.Contains(p.Runtimes, s.Runtime) {
		return nil
	}
	return commands.Refuse(commands.Policy, "runtime %s is not allowed on this spoke", s.Runtime).
		Hinting("its host can allow it under runtimes in policy.yaml")
}

func (p *Policy) judgeCommand(s *commands.Spawn) *commands.Refused {
	if s.Runtime != commands.RuntimeExec {
		return nil
	}
	for _, entry := range p.Commands {
		words := strings.Fields(entry)
		if entry == anything || len(words) > 0 && len(words) <= len(s.Argv) && slices.Equal(words, s.Argv[:len(words)]) {
			return nil
		}
	}
	return commands.Refuse(commands.Policy, "command %q is not allowed on this spoke", filepath.Base(s.Argv[0])).
		Hinting("its host can allow it under commands in policy.yaml; see: spawnmesh spoke policy test")
}

func (p *Policy) judgeDir(s *commands.Spawn) *commands.Refused {
	if s.Dir == "" {
		return nil
	}
	if !filepath.IsAbs(s.Dir) || filepath.Clean(s.Dir) != s.Dir {
		return commands.Refuse(commands.BadPath, "directory %q is not an absolute path in its shortest form", s.Dir)
	}
	if slices.Contains(p.Directories, anything) {
		return nil
	}
	// A symbolic link must not lead out of what is allowed.
	real, err := filepath.EvalSymlinks(s.Dir)
	if err == nil {
		for _, d := range p.Directories {
			if real == d || strings.HasPrefix(real, strings.TrimSuffix(d, "/")+"/") {
				return nil
			}
		}
	}
	return commands.Refuse(commands.BadPath, "directory %s is not allowed on this spoke", s.Dir).
		Hinting("its host can allow it under directories in policy.yaml; without one the agent gets a fresh directory")
}

func (p *Policy) judgeEnv(s *commands.Spawn) *commands.Refused {
	for _, e := range s.Env {
		if !slices.Contains(p.Environment, e.Name) && !slices.Contains(p.Environment, anything) {
			return commands.Refuse(commands.Policy, "environment variable %s is not allowed on this spoke", e.Name).
				Hinting("its host can allow it under environment in policy.yaml")
		}
	}
	// Names that make programs run other code must be allowed one by one.
	err := runtime.CheckEnv(environment(s), p.Environment)
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
		if !slices.Contains(p.Capabilities, c) {
			return commands.Refuse(commands.Capability, "this spoke does not have capability %s", c).
				Hinting("its host can offer it under capabilities in policy.yaml")
		}
	}
	return nil
}

// Text is the policy as a file.
func (p *Policy) Text() ([]byte, error) { return yaml.Marshal(p) }
