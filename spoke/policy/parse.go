package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/spawnmesh/spawnmesh/commands"
)

// The words of on_revoke.
const (
	kill   = "kill"
	finish = "finish"
)

// A problem is what is wrong at one place of the file.
type problem struct {
	path string // "$.limits.timeout"
	text string
}

func wrong(path, format string, args ...any) *problem {
	return &problem{path, fmt.Sprintf(format, args...)}
}

// Parse reads a policy. Errors name the line and what to do, and quote no other
// line: the next one may hold a secret.
func Parse(raw []byte) (*Policy, error) {
	if len(raw) > maxFile {
		return nil, fmt.Errorf("is larger than %d bytes", maxFile)
	}
	var p Policy
	dec := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict())
	if err := decode(dec, &p); err != nil && err != io.EOF {
		return nil, errors.New(inWords(yaml.FormatError(err, false, false)))
	}
	if err := decode(dec, &Policy{}); err != io.EOF {
		return nil, errors.New("has a second document; write everything into one")
	}
	places := locate(raw)
	for i := range p.Commands {
		p.Commands[i].line = places.line(entry("commands", i))
	}
	for _, check := range []func() *problem{p.checkRules, p.checkIsolation, p.checkCommands, p.checkLimits, func() *problem { return p.Settings.check("$") }} {
		if w := check(); w != nil {
			return nil, fmt.Errorf("%s%s", places.of(w.path), w.text)
		}
	}
	text, err := p.Text()
	if err != nil {
		return nil, fmt.Errorf("writing it down as understood: %w", err)
	}
	sum := sha256.Sum256(text)
	p.id = hex.EncodeToString(sum[:6])
	return &p, nil
}

// decode reads one document. The library panics on some texts that are none; to
// the host that is one more thing to correct in the file.
func decode(dec *yaml.Decoder, p *Policy) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("cannot be read as YAML")
		}
	}()
	return dec.Decode(p)
}

func entry(list string, i int) string { return fmt.Sprintf("$.%s[%d]", list, i) }

func (p *Policy) checkRules() *problem {
	if p.Version != 1 {
		return wrong("$.version", "version is %d; this program knows version 1: write version: 1", p.Version)
	}
	for i, r := range p.Runtimes {
		if r != commands.RuntimeExec && r != commands.RuntimeNoop {
			return wrong(entry("runtimes", i), "runtime %q is not known; there are exec and noop", r)
		}
	}
	if n, err := sizes.read(p.MaxInputBytes); p.MaxInputBytes != "" && (err != nil || n < 0) {
		return wrong("$.max_input_bytes", "max_input_bytes %q is not %s, such as %s; 0 takes no inputs", p.MaxInputBytes, sizes.is, sizes.like)
	}
	for i, d := range p.Directories {
		if d != anything && !filepath.IsAbs(d) {
			return wrong(entry("directories", i), "directory %q is not absolute; write the whole path", d)
		}
		if d != anything && strings.Contains(d, "*") {
			return wrong(entry("directories", i), "directory %q has a *, which stands for nothing in a path; a directory allows all below it: %s", d, withoutPattern(d))
		}
		p.Directories[i] = filepath.Clean(d) // what is asked for is in this form too
	}
	return nil
}

// withoutPattern says what to write in place of a path that is meant as a pattern.
func withoutPattern(path string) string {
	before, _, _ := strings.Cut(path, "*")
	if dir := filepath.Dir(before); dir != "/" {
		return "write " + dir
	}
	return "list each by its whole path, or write '*' for all"
}

func (p *Policy) checkCommands() *problem {
	for i, c := range p.Commands {
		path := entry("commands", i)
		if text := c.Run.check(); text != "" {
			return wrong(path, "%s", text)
		}
		if w := cmp.Or(c.Settings.check(path), c.Provider.check(path)); w != nil {
			return w
		}
	}
	return nil
}

func (p *Policy) checkLimits() *problem {
	if w := p.Limits.check(); w != nil {
		return w
	}
	if !slices.Contains([]string{"", kill, finish}, p.OnRevoke) {
		return wrong("$.on_revoke", "on_revoke %q is not known; write kill or finish", p.OnRevoke)
	}
	if d, err := duration(p.ConnectionLease); p.ConnectionLease != "" && (err != nil || d < 5*time.Minute || d > 7*24*time.Hour) {
		return wrong("$.connection_lease", "connection_lease %q is not a duration from 5m to 7d", p.ConnectionLease)
	}
	return nil
}

// duration reads a duration such as 90s, 24h or 7d.
func duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 15)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// inUnits writes a number of bytes as a file has it.
func inUnits(n int64) Amount { return Amount(commands.SizeText(n)) }

// What the library says of values of another type. It names types of Go, of which the host knows none.
var (
	typeErrors  = regexp.MustCompile(`cannot unmarshal (\[\]interface \{\}|map\[string\]interface \{\}|\S+) into Go (?:struct field \S+|value) of type (\S+)(?: \( overflow \))?`)
	shapeErrors = regexp.MustCompile(`(\w+) was used where (sequence|mapping) is expected`)
	wanted      = map[string]string{"int": "a whole number", "int64": "a whole number", "bool": "true or false", "sequence": "a list", "mapping": "a list of names with values"}
)

// inWords says such an error in the words of a file.
func inWords(text string) string {
	for _, form := range []*regexp.Regexp{typeErrors, shapeErrors} {
		text = form.ReplaceAllStringFunc(text, func(said string) string {
			m := form.FindStringSubmatch(said)
			return fmt.Sprintf("%s is not what belongs here; write %s", found(m[1]), cmp.Or(wanted[m[2]], "a text"))
		})
	}
	return text
}

// found names what a file has, by a type or as it stands.
func found(what string) string {
	switch {
	case what == "string":
		return "a text"
	case strings.HasPrefix(what, "[]"), what == "sequence":
		return "a list"
	case what == "int", what == "float", what == "bool":
		return "one value"
	case strings.HasPrefix(what, "map"):
		return "a list of names with values"
	}
	return what
}

// places finds where in a file something stands.
type places struct{ file *ast.File }

// locate parses a text that was decoded before. What cannot be located is named
// without its line.
func locate(raw []byte) (l places) {
	defer func() { _ = recover() }()
	l.file, _ = parser.ParseBytes(raw, 0)
	return l
}

// find returns line and column of a path, 0 when it is not in the file.
func (l places) find(path string) (line, column int) {
	defer func() { _ = recover() }() // as decode
	at, err := yaml.PathString(path)
	if err != nil || l.file == nil {
		return 0, 0
	}
	node, err := at.FilterFile(l.file)
	if err != nil || node == nil || node.GetToken() == nil {
		return 0, 0
	}
	pos := node.GetToken().Position
	return pos.Line, pos.Column
}

func (l places) line(path string) int {
	line, _ := l.find(path)
	return line
}

// of writes a place as the library writes it in its errors.
func (l places) of(path string) string {
	if line, column := l.find(path); line > 0 {
		return fmt.Sprintf("[%d:%d] ", line, column)
	}
	return ""
}
