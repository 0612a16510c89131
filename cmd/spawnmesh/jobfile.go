package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/spawnmesh/spawnmesh/commands"
)

// What a file of jobs may be.
const (
	maxJobFile = 2 << 20
	maxJobs    = 10_000
	maxBrought = 64 << 20 // bytes that all of them bring, each content once
)

// A jobFile is a file of jobs: each document is a job, or jobs with what they share.
type jobFile struct {
	name, dir string // as it was named; "" = here
	jobs      []*job
	wrong     []error
}

// A job is one agent that a file asks for.
type job struct {
	spawnFlags
	at     string // "jobs.yaml:3:1"
	fields []jobField
	notes  []string // for people
}

// A misplaced says what is wrong at a node below a field.
type misplaced struct {
	node ast.Node
	text string
}

func (m *misplaced) Error() string { return m.text }

func wrongAt(node ast.Node, format string, args ...any) error {
	return &misplaced{node, fmt.Sprintf(format, args...)}
}

// readJobs reads a file of jobs. What is wrong with it is all in wrong.
func (a *app) readJobs(path string) (*jobFile, error) {
	f := &jobFile{name: path, dir: filepath.Dir(path)}
	if path == "-" {
		f.name, f.dir = "standard input", ""
	}
	text, err := source{what: "--jobs", path: path, input: path == "-", most: maxJobFile, larger: "order them from several files"}.read(a.in)
	if err != nil {
		return nil, err
	}
	if err := f.read([]byte(text)); err != nil {
		return nil, err
	}
	if len(f.jobs) == 0 && len(f.wrong) == 0 {
		return nil, misuse("%s has no jobs", f.name).Hinting("write one, as in: argv: [echo, hi]")
	}
	return f, nil
}

func (f *jobFile) read(raw []byte) (err error) {
	defer func() { // the library panics on some texts that are none
		if r := recover(); r != nil {
			err = misuse("%s cannot be read as YAML", f.name)
		}
	}()
	docs, err := parseJobs(raw)
	if err != nil {
		line, column, text := 1, 1, err.Error()
		if e, ok := errors.AsType[yaml.Error](err); ok {
			line, column, text = e.GetToken().Position.Line, e.GetToken().Position.Column, e.GetMessage()
		} else if e, ok := errors.AsType[*boundError](err); ok {
			line, column = e.at.Line, e.at.Column
		}
		return misuse("%s:%d:%d: %s", f.name, line, column, text).Hinting("correct the YAML there; nothing was ordered")
	}
	for _, d := range docs {
		switch body := d.Body.(type) {
		case nil, *ast.CommentGroupNode, *ast.DirectiveNode, *ast.NullNode:
		case *ast.MappingNode:
			f.document(body)
		default:
			f.refuse(body, "", "a document is a job, or defaults and jobs; this is neither")
		}
	}
	return nil
}

// document reads a job, or {defaults: {...}, jobs: [...]}.
func (f *jobFile) document(m *ast.MappingNode) {
	var defaults, jobs ast.Node
	for _, v := range m.Values {
		switch v.Key.GetToken().Value {
		case "defaults":
			defaults = v.Value
		case "jobs":
			jobs = v.Value
		}
	}
	if defaults == nil && jobs == nil {
		f.add(m, nil)
		return
	}
	for _, v := range m.Values {
		if key := v.Key.GetToken().Value; key != "defaults" && key != "jobs" {
			f.refuse(v.Key, key, "beside defaults and jobs there is nothing; put it into a job, or into defaults")
		}
	}
	shared, ok := defaults.(*ast.MappingNode)
	if defaults != nil && !ok {
		f.refuse(defaults, "defaults", "write fields of a job")
		return
	}
	if shared != nil && !f.fill(&job{}, shared) {
		return // each job would say it again
	}
	list, ok := jobs.(*ast.SequenceNode)
	if !ok {
		f.refuse(m, "jobs", "write a list of jobs")
		return
	}
	if len(list.Values) > maxJobs {
		f.refuse(m, "jobs", "%d jobs, limit %d; order them from several files", len(list.Values), maxJobs)
		return
	}
	for _, node := range list.Values {
		if m, ok := node.(*ast.MappingNode); ok {
			f.add(m, shared)
		} else {
			f.refuse(node, "jobs", "a job is a mapping, as in: - argv: [echo, hi]")
		}
	}
}

func (f *jobFile) add(m, shared *ast.MappingNode) {
	if len(f.jobs) > maxJobs {
		return // none of them is ordered
	}
	j := &job{at: f.place(first(m))}
	if (shared == nil || f.fill(j, shared)) && f.fill(j, m) {
		f.jobs = append(f.jobs, j)
	}
}

// first is where a mapping begins.
func first(m *ast.MappingNode) ast.Node {
	if len(m.Values) > 0 {
		return m.Values[0].Key
	}
	return m
}

// fill sets the fields of a job, and reports whether all could be.
func (f *jobFile) fill(j *job, m *ast.MappingNode) bool {
	if j.fields == nil {
		j.fields = j.jobFields()
	}
	before := len(f.wrong)
	for _, v := range m.Values {
		key := v.Key.GetToken().Value
		if err := f.field(j, key, v.Value); err != nil {
			node := ast.Node(v.Value)
			if m, ok := errors.AsType[*misplaced](err); ok {
				node = m.node
			} else if errors.Is(err, errNoField) {
				node = v.Key
			}
			f.refuse(node, key, "%v", err)
		}
	}
	return len(f.wrong) == before
}

var errNoField = errors.New("there is no such field")

func (f *jobFile) field(j *job, key string, node ast.Node) (err error) {
	if key == argvField {
		j.req.Spawn.Argv, err = texts(node)
		return err
	}
	if i := slices.IndexFunc(j.fields, func(known jobField) bool { return known.name == key }); i >= 0 {
		return j.fields[i].set(node, f.dir)
	}
	names := []string{argvField}
	for _, known := range j.fields {
		names = append(names, known.name)
	}
	if like := nearest(key, names); len(like) > 0 {
		return fmt.Errorf("%w; did you mean: %s", errNoField, strings.Join(like, ", or: "))
	}
	return fmt.Errorf("%w; all are in: spawn --schema", errNoField)
}

// refuse notes what is wrong with a field.
func (f *jobFile) refuse(node ast.Node, field, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if field != "" {
		text = commands.Clip(field) + ": " + text
	}
	f.wrong = append(f.wrong, misuse("%s: %s", f.place(node), text))
}

func (f *jobFile) place(node ast.Node) string {
	at := node.GetToken().Position
	return fmt.Sprintf("%s:%d:%d", f.name, at.Line, at.Column)
}
