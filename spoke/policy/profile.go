package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

// Runtimes of a profile.
const (
	RuntimeExec = "exec" // the command is the agent
	RuntimeACP  = "acp"  // it is a coding agent, which worker acp of this program drives
)

// A Profile is a command that the host has given a name: an order names it alone, as profile:NAME. Its file is the permission.
type Profile struct {
	Name        string   `yaml:"-" json:"name"`                                      // of its file, without .yaml
	Runtime     string   `yaml:"runtime" json:"runtime"`                             // exec, acp
	Command     []string `yaml:"command" json:"command"`                             // words; no pattern and no shell
	Environment []string `yaml:"environment,omitempty" json:"environment,omitempty"` // names an order may set, beside those of the policy
	Allow       []string `yaml:"allow,omitempty" json:"allow,omitempty"`             // kinds of tools, of acp
	Deny        []string `yaml:"deny,omitempty" json:"deny,omitempty"`
	Ask         []string `yaml:"ask,omitempty" json:"ask,omitempty"`
	Auth        string   `yaml:"auth,omitempty" json:"auth,omitempty"`       // how the agent is logged in to that asks for it: one of its own methods
	Session     string   `yaml:"session,omitempty" json:"session,omitempty"` // new: each attempt begins one; "" = it goes on
	Settings    `yaml:",inline"`
	Provider    `yaml:",inline"`
}

// profilePrefix begins the one word of an order that names a profile, and the capability of a spoke that has it.
const profilePrefix = "profile:"

var profileForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// ProfileWord is the command of an order, and the capability, that mean a profile; the error is a [*commands.Refused].
func ProfileWord(name string) (string, error) {
	if !profileForm.MatchString(name) {
		return "", commands.Refuse(commands.Validation, "profile %q is not 1 to 32 lower-case letters, digits and dashes", commands.Clip(name))
	}
	return profilePrefix + name, nil
}

// ProfileDir is where the profiles of the instance in dir are.
func ProfileDir(dir string) string { return filepath.Join(dir, "profiles") }

// ProfileFile is the file of one of them.
func ProfileFile(dir, name string) string { return filepath.Join(ProfileDir(dir), name+".yaml") }

// ParseProfile reads a profile.
func ParseProfile(name string, raw []byte) (v Profile, err error) {
	defer func() {
		if r := recover(); r != nil { // the library does on some texts
			err = errors.New("cannot be read as YAML")
		}
	}()
	if err := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict()).Decode(&v); err != nil && err != io.EOF {
		return v, errors.New(inWords(yaml.FormatError(err, false, false)))
	}
	v.Name = name
	return v, v.check()
}

func (v Profile) check() error {
	if _, err := ProfileWord(v.Name); err != nil {
		return err
	}
	switch {
	case v.Runtime != RuntimeExec && v.Runtime != RuntimeACP:
		return fmt.Errorf("runtime %q is not known; there are exec and acp", v.Runtime)
	case len(v.Command) == 0 || v.Command[0] == "":
		return errors.New("no command; write command: [PROGRAM, ARGUMENT]")
	case v.Session != "" && v.Session != "new" && v.Session != "resume":
		return fmt.Errorf("session %q is neither new nor resume", v.Session)
	case v.Runtime == RuntimeExec && len(v.Allow)+len(v.Deny)+len(v.Ask)+len(v.Auth) > 0:
		return errors.New("allow, deny, ask and auth are of the runtime acp: nobody asks for an agent of exec")
	}
	for _, kind := range slices.Concat(v.Allow, v.Deny, v.Ask) {
		if kind != anything && !slices.Contains(wire.Kinds, wire.ToolKind(kind)) {
			return fmt.Errorf("%q is no kind of tool; there are %s and *", kind, wire.Kinds)
		}
	}
	s := commands.Spawn{Task: "00000000-0000-4000-8000-000000000000", Runtime: commands.RuntimeExec, Argv: v.argv("/")}
	if err := s.ValidateOrder(); err != nil {
		return err
	}
	for _, w := range []*problem{v.Settings.check("$"), v.Provider.check("$")} {
		if w != nil {
			return errors.New(w.text)
		}
	}
	return nil
}

// argv is what runs, by the program at a path where that is this one.
func (v Profile) argv(self string) []string {
	if v.Runtime == RuntimeExec {
		return v.Command
	}
	argv := []string{self, "worker", "acp"}
	for _, f := range []struct {
		flag string
		list []string
	}{{"--allow", v.Allow}, {"--deny", v.Deny}, {"--ask", v.Ask}, {"--limit-pattern", v.LimitPatterns}} {
		for _, value := range f.list {
			argv = append(argv, f.flag+"="+value)
		}
	}
	if v.Auth != "" {
		argv = append(argv, "--auth="+v.Auth)
	}
	if v.Session == "new" {
		argv = append(argv, "--new-session")
	}
	return append(append(argv, "--"), v.Command...)
}

// readProfiles reads the profiles of the instance in dir.
func (p *Policy) readProfiles(dir string) error {
	entries, err := os.ReadDir(ProfileDir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the profiles: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program for its profiles: %w", err)
	}
	sum, size := sha256.New(), 0
	sum.Write([]byte(p.id))
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".yaml")
		if !ok {
			continue
		}
		v, err := readProfile(dir, name)
		if err != nil {
			return err
		}
		word, run := profilePrefix+name, v.argv(self)
		p.profiles = append(p.profiles, Command{Run: Pattern{word}, Settings: v.Settings, Provider: v.Provider, profile: &v, runs: run})
		text, err := yaml.Marshal(v)
		if err != nil {
			return fmt.Errorf("profile %s: writing it down as understood: %w", name, err)
		}
		fmt.Fprintf(sum, "%s\x00%s\x00", word, text)
		size += len(word)
	}
	if len(p.profiles) == 0 {
		return nil
	}
	for _, c := range p.Capabilities {
		size += len(c)
	}
	if n := len(p.Capabilities) + len(p.profiles); n > commands.OwnCapabilities || size > commands.OwnCapabilityBytes {
		return fmt.Errorf("%d capabilities and profiles with names of %d bytes; a spoke may name %d of %d", n, size, commands.OwnCapabilities, commands.OwnCapabilityBytes)
	}
	p.id = hex.EncodeToString(sum.Sum(nil)[:6])
	return nil
}

func readProfile(dir, name string) (Profile, error) {
	path := ProfileFile(dir, name)
	raw, mode, err := readFile(path, hostfile.Rule{})
	if err != nil {
		return Profile{}, fmt.Errorf("reading profile %s: %w", name, err)
	}
	v, err := ParseProfile(name, raw)
	if err != nil {
		return v, fmt.Errorf("profile %s: %w", path, err)
	}
	if len(v.Env) > 0 && mode&0o044 != 0 {
		return v, fmt.Errorf("profile %s holds values under env, and others can read it; run: chmod 600 %s", path, path)
	}
	return v, nil
}

// Profiles are those of this host, in the order of their names.
func (p *Policy) Profiles() (list []Profile) {
	for _, c := range p.profiles {
		list = append(list, *c.profile)
	}
	return list
}

// entries are all that an order can name, profiles first: no pattern means one of them.
func (p *Policy) entries() []Command { return slices.Concat(p.profiles, p.Commands) }

// namesProfile reports whether an order names a profile, be there one or not.
func namesProfile(argv []string) bool {
	return len(argv) > 0 && strings.HasPrefix(argv[0], profilePrefix)
}
