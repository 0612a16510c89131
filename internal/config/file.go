package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
)

const maxFile = 1 << 20

// A file is a flat YAML mapping. It is koanf's parser: koanf's own knows no lines, and
// reads numbers and words such as 0644 and on as something else than what is written.
type file struct {
	path  string
	keys  []string // in their order
	lines map[string]int
}

func read(path string) (*file, []byte, error) {
	f := &file{path: path, lines: map[string]int{}}
	raw, err := hostfile.Read(path, hostfile.Rule{}, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return f, raw, nil
}

// at says where a key is.
func (f *file) at(key string) string { return f.line(f.lines[key]) }

func (f *file) line(n int) string { return fmt.Sprintf("%s:%d", f.path, n) }

func (f *file) wrong(n int, format string, args ...any) error {
	return commands.Refuse(commands.Validation, "%s: %s", f.line(n), fmt.Sprintf(format, args...)).
		Hinting("each line is the name of a setting, a colon and its value, as in: slots: 4")
}

// Unmarshal returns the values as they are written.
func (f *file) Unmarshal(raw []byte) (map[string]any, error) {
	if i := bytes.IndexFunc(raw, func(r rune) bool { return r == utf8.RuneError }); i >= 0 {
		return nil, f.wrong(1+bytes.Count(raw[:i], []byte("\n")), "it is not UTF-8")
	}
	doc, err := parser.ParseBytes(raw, 0)
	if err != nil {
		line, text := 1, err.Error()
		if e, ok := errors.AsType[yaml.Error](err); ok {
			line, text = e.GetToken().Position.Line, e.GetMessage()
		}
		return nil, f.wrong(line, "%s", text)
	}
	values := map[string]any{}
	for _, d := range doc.Docs {
		if err := f.document(d, values); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (f *file) document(d *ast.DocumentNode, values map[string]any) error {
	switch body := d.Body.(type) {
	case nil, *ast.CommentGroupNode:
		return nil
	case *ast.MappingNode:
		for _, v := range body.Values {
			if err := f.entry(v, values); err != nil {
				return err
			}
		}
		return nil
	default:
		return f.wrong(body.GetToken().Position.Line, "there is no name of a setting")
	}
}

func (f *file) entry(v *ast.MappingValueNode, values map[string]any) error {
	at := v.Key.GetToken()
	if _, twice := values[at.Value]; twice {
		return f.wrong(at.Position.Line, "%q is set already", commands.Clip(at.Value))
	}
	var value string
	switch n := v.Value.(type) {
	case *ast.StringNode:
		value = n.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		value = n.GetToken().Value
	default:
		return f.wrong(at.Position.Line, "%q has no value that is one word or text", commands.Clip(at.Value))
	}
	f.keys = append(f.keys, at.Value)
	f.lines[at.Value] = at.Position.Line
	values[at.Value] = value
	return nil
}

// Marshal is there for koanf, and not used.
func (f *file) Marshal(map[string]any) ([]byte, error) {
	return nil, errors.New("a configuration is not written")
}
