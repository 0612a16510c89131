// Package contexts remembers the hubs that a user asks over the network: a name, an address and the file of a token
// for each.
//
// Its tests are those of cmd/spawnmesh.
package contexts

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
	"github.com/spawnmesh/spawnmesh/internal/token"
)

// A Context is a hub that is asked over the network.
type Context struct {
	URL       string `yaml:"url"`
	TokenFile string `yaml:"token_file"`
	CA        string `yaml:"ca,omitempty"` // file with the authority of its certificate; "" = those of the system
}

// A Book is the file with the contexts of a user.
type Book struct {
	Current  string             `yaml:"current,omitempty"` // the one that is asked where nothing else is said; "" = none
	Contexts map[string]Context `yaml:"contexts"`

	path string
}

// maxFile bounds what is read of a file.
const maxFile = 1 << 20

// Read reads the book at path, which only its user can have written. One that is not there is empty; one that has no path
// cannot be written.
func Read(path string) (*Book, error) {
	b := &Book{Contexts: map[string]Context{}, path: path}
	if path == "" {
		return b, nil
	}
	raw, err := read(path, hostfile.Rule{})
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the contexts: %w", err)
	}
	if err := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict()).Decode(b); err != nil && !errors.Is(err, io.EOF) {
		return nil, commands.Refuse(commands.Validation, "reading the contexts in %s: %v", path, err).Hinting("correct the file, or remove it and add the contexts again")
	}
	for name, c := range b.Contexts {
		if err := errors.Join(checkName(name), c.check()); err != nil {
			return nil, commands.Refuse(commands.Validation, "reading the contexts in %s: %s: %v", path, commands.Clip(name), err).Hinting("correct the file, or remove it and add the contexts again")
		}
	}
	return b, nil
}

func read(path string, rule hostfile.Rule) ([]byte, error) {
	return hostfile.Read(path, rule, maxFile)
}

// Write puts the book where it was read.
func (b *Book) Write() error {
	if b.path == "" {
		return commands.Refuse(commands.Validation, "there is no place for contexts").Hinting("set HOME, or XDG_CONFIG_HOME")
	}
	raw, err := yaml.Marshal(b)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(b.path), 0o700)
	}
	if err == nil {
		err = fsync.Replace(b.path, raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing the contexts: %w", err)
	}
	return nil
}

// Get returns a context.
func (b *Book) Get(name string) (Context, error) {
	c, there := b.Contexts[name]
	if !there {
		return c, commands.Refuse(commands.NotFound, "there is no context %q", commands.Clip(name)).Hinting("see").Running("context", "list")
	}
	return c, nil
}

// Add adds a context after it has looked at its files, in the place of the one with its name where that is replaced.
func (b *Book) Add(name string, c Context, replace bool) error {
	if there, taken := b.Contexts[name]; taken && !replace {
		return commands.Refuse(commands.Conflict, "there is a context %s already, for %s", name, there.URL).Hinting("choose another name, or add --replace to replace it")
	}
	err := errors.Join(checkName(name), c.check())
	if err == nil {
		_, err = c.Token()
	}
	if err == nil && c.CA != "" {
		_, err = c.Authority()
	}
	if err != nil {
		return err
	}
	b.Contexts[name] = c
	return nil
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return commands.NotAName(name)
	}
	return nil
}

// check says what is wrong with an address: a token travels in the clear to this machine only.
func (c Context) check() error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return commands.Refuse(commands.Validation, "%q is not the address of a hub", commands.Clip(c.URL)).Hinting("as in: --url https://hub.example.org:7480")
	}
	ip, _ := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && u.Hostname() != "localhost" && !ip.IsLoopback() {
		return commands.Refuse(commands.Validation, "with %s the token would travel in the clear to another machine", c.URL).Hinting("use https")
	}
	if c.TokenFile == "" {
		return commands.Refuse(commands.Validation, "a context needs the file of a token").Hinting("add --token-file FILE; a token is made on the hub with: spawnmesh token create --name NAME --role ROLE --workspace WORKSPACE")
	}
	return nil
}

// Token reads the token, whose file is its user's alone.
func (c Context) Token() (token.Token, error) {
	raw, err := read(c.TokenFile, hostfile.Rule{Secret: true})
	if err != nil {
		return token.Token{}, fmt.Errorf("reading the token of a context: %w", err)
	}
	t, err := token.Parse(strings.TrimSpace(string(raw)))
	if err != nil {
		return token.Token{}, commands.Refuse(commands.Validation, "reading the token in %s: %v", c.TokenFile, err).Hinting("put the line that token create has shown there")
	}
	return t, nil
}

// Authority returns who may have issued the certificate of the hub; nil stands for the authorities of the system.
func (c Context) Authority() (*x509.CertPool, error) {
	if c.CA == "" {
		return nil, nil
	}
	raw, err := read(c.CA, hostfile.Rule{})
	if err != nil {
		return nil, fmt.Errorf("reading the authority of a context: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, commands.Refuse(commands.Validation, "there is no certificate in %s", c.CA).Hinting("--ca is a file in PEM with the certificate of the authority, or of the hub itself")
	}
	return pool, nil
}
