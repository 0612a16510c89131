// Package policy decides what may run on a host, by a file that only its host
// writes.
//
// The file says which orders are allowed, in what environment their agents run,
// and how much they may take. No message changes it. What it does not allow is
// refused. A [Live] policy is replaced whole while a spoke runs; every policy
// has a version that names its rules in receipts.
//
// Values of the environment stay in this package until an agent gets them: a
// [Value] shows itself nowhere, and no error quotes one.
package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/spawnmesh/spawnmesh/internal/hostfile"
)

// A Policy says what may run on this host. It is read-only once it was read.
type Policy struct {
	Version         int       `yaml:"version" json:"version"`                                     // of the format: 1
	Runtimes        []string  `yaml:"runtimes" json:"runtimes"`                                   // exec, noop
	Commands        []Command `yaml:"commands" json:"commands"`                                   // the first that fits decides
	Directories     []string  `yaml:"directories" json:"directories"`                             // where agents may be asked to run, or "*"; a fresh one is always allowed
	Environment     []string  `yaml:"environment" json:"environment"`                             // names an order may set, or "*"
	InlineFiles     bool      `yaml:"inline_files,omitempty" json:"inline_files,omitempty"`       // an order may bring files and standard input
	MaxInputBytes   Amount    `yaml:"max_input_bytes,omitempty" json:"max_input_bytes,omitempty"` // of the inputs of an order together; "" = 0, none are taken
	Capabilities    []string  `yaml:"capabilities" json:"capabilities"`                           // what this host offers to be matched with
	Settings        `yaml:",inline"`
	Isolation       `yaml:",inline"`
	Limits          Limits `yaml:"limits" json:"limits"`
	OnRevoke        string `yaml:"on_revoke,omitempty" json:"on_revoke,omitempty"`               // kill, finish; "" = kill
	ConnectionLease string `yaml:"connection_lease,omitempty" json:"connection_lease,omitempty"` // "24h"; "" = DefaultConnectionLease

	profiles []Command // of the files beside it

	id      string
	dir     string // the data directory of its instance, without symbolic links; "" = of none
	held    Held   // nil before the host was looked at
	fetches bool   // the spoke fetches inputs
}

// What holds where a policy says nothing.
const (
	DefaultPath            = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	DefaultConnectionLease = 24 * time.Hour
)

// anything as an entry allows all.
const anything = "*"

const maxFile = 1 << 20

// File returns where the policy of the instance in dir is.
func File(dir string) string { return filepath.Join(dir, "policy.yaml") }

// Load reads the policy of the instance in dir, with the files it names. Without
// a policy nothing is allowed. A file that others could have written, or put there, is
// refused, and so is one with values of variables that others can read, and one that says
// anything this version does not know. Errors name the
// file, where there is one the line, and what to do.
func Load(dir string) (*Policy, error) {
	path := File(dir)
	raw, mode, err := readFile(path, hostfile.Rule{})
	if errors.Is(err, fs.ErrNotExist) {
		return Parse([]byte(Presets["deny"])) // with which no agent starts, whatever profiles there are
	}
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	p, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", path, err)
	}
	if err := p.checkSecret(path, mode); err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	if err := p.readProfiles(dir); err != nil {
		return nil, err
	}
	if err := p.readSettings(dir); err != nil {
		return nil, fmt.Errorf("policy %s: %w", path, err)
	}
	if p.dir, err = filepath.Abs(dir); err == nil {
		p.dir, err = filepath.EvalSymlinks(p.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	return p, nil
}

// readFile reads a file that only the host can have written, and its mode.
func readFile(path string, rule hostfile.Rule) ([]byte, fs.FileMode, error) {
	f, err := hostfile.Open(path, rule)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(raw) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return raw, info.Mode(), err
}

// checkSecret refuses a policy that holds values of variables where others can read it.
func (p *Policy) checkSecret(path string, mode fs.FileMode) error {
	secret := len(p.Env) > 0 || slices.ContainsFunc(p.Commands, func(c Command) bool { return len(c.Env) > 0 })
	if secret && mode&0o044 != 0 {
		return fmt.Errorf("%s holds values under env, and others can read it; run: chmod 600 %s", path, path)
	}
	return nil
}

// ID is the version of these rules: twelve hex digits of the SHA-256 of all that
// the policy says, without the values of variables. Two files that say the same
// have the same.
func (p *Policy) ID() string { return p.id }

// Text is the policy as a file, without the values of variables.
func (p *Policy) Text() ([]byte, error) { return yaml.Marshal(p) }

// Timeout returns how long an agent that asked for asked may run; 0 for ever.
func (p *Policy) Timeout(asked time.Duration) time.Duration {
	return time.Duration(narrower(int64(asked), int64(p.Limits.Run())))
}

// Memory returns how many bytes an agent that asked for asked may use, 0 for no
// limit.
func (p *Policy) Memory(asked int64) int64 {
	return narrower(asked, sizes.of(p.Limits.Memory))
}

// Pids returns how many processes an agent that asked for asked may have, 0 for
// no limit.
func (p *Policy) Pids(asked int) int { return int(narrower(int64(asked), counts.of(p.Limits.Pids))) }

// narrower is the smaller of two limits, where 0 is none.
func narrower(asked, limit int64) int64 {
	if limit == 0 || asked > 0 && asked < limit {
		return asked
	}
	return limit
}

// InputLimit is how many bytes the inputs of an order may have together; 0 = it may have none.
func (p *Policy) InputLimit() int64 {
	if !p.fetches {
		return 0
	}
	return sizes.of(p.MaxInputBytes)
}

// KillOnRevoke reports whether the agents of a hub are ended when its connection
// is revoked; otherwise they may finish.
func (p *Policy) KillOnRevoke() bool { return p.OnRevoke != finish }

// Lease is how long this host starts agents for a hub that it does not hear.
func (p *Policy) Lease() time.Duration {
	if p.ConnectionLease == "" {
		return DefaultConnectionLease
	}
	d, _ := duration(p.ConnectionLease)
	return d
}
