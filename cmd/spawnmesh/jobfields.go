package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/spf13/pflag"
)

// A job in a file has the flags of spawn as fields: each is named as its flag is, with _ in place of -, and in the
// plural where a flag may be given again. argvField is the one that is no flag.
const argvField = "argv"

// A jobField is a field of a job.
type jobField struct {
	name string
	flag *pflag.Flag
}

// jobFields are all fields of a job but argv, which fill f.
func (f *spawnFlags) jobFields() (list []jobField) {
	fl := pflag.NewFlagSet("job", pflag.ContinueOnError)
	fl.SortFlags = false
	f.fields(fl)
	fl.VisitAll(func(flag *pflag.Flag) { list = append(list, jobField{fieldName(flag), flag}) })
	return list
}

func fieldName(flag *pflag.Flag) string {
	name := strings.ReplaceAll(flag.Name, "-", "_")
	switch {
	case !several(flag) || name == "env":
		return name
	case strings.HasSuffix(name, "y"):
		return strings.TrimSuffix(name, "y") + "ies"
	}
	return name + "s"
}

// several reports whether a flag may be given again, givesNames whether each time it gives a name a value: then the
// field is a mapping.
func several(flag *pflag.Flag) bool { _, ok := flag.Value.(pflag.SliceValue); return ok }

func givesNames(flag *pflag.Flag) bool {
	form, _ := pflag.UnquoteUsage(flag)
	return several(flag) && strings.Contains(form, "=")
}

// set gives a field the value of a node; files that it names are in dir.
func (j jobField) set(node ast.Node, dir string) error {
	switch {
	case givesNames(j.flag):
		return j.setNames(node, dir)
	case several(j.flag):
		list, err := texts(node)
		for i := range list {
			list[i] = rebased(j.flag.Name, list[i], dir)
		}
		if err != nil {
			return err
		}
		return j.flag.Value.(pflag.SliceValue).Replace(list)
	}
	text, err := written(node)
	if err != nil {
		return err
	}
	if _, bool := node.(*ast.BoolNode); !bool && j.flag.Value.Type() == "bool" {
		return errors.New("write true or false")
	}
	if err := j.flag.Value.Set(rebased(j.flag.Name, text, dir)); err != nil {
		if _, number := errors.AsType[*strconv.NumError](err); number {
			return fmt.Errorf("%q is not a whole number", text)
		}
		return err
	}
	return nil
}

// setNames adds names with values; a name that is there already, from the defaults, has the new one.
func (j jobField) setNames(node ast.Node, dir string) error {
	m, ok := node.(*ast.MappingNode)
	if !ok {
		return wrongAt(node, "write a mapping of names and values, as in: {CI: \"1\"}")
	}
	var pairs []string
	for _, v := range m.Values {
		name := v.Key.GetToken().Value
		text, err := written(v.Value)
		if err != nil {
			return wrongAt(v.Key, "%s: %v", name, err)
		}
		if name == "" || strings.Contains(name, "=") {
			return wrongAt(v.Key, "the name %q is empty or has an =", name)
		}
		pairs = append(pairs, name+"="+rebased(j.flag.Name, text, dir))
	}
	return overlay(j.flag, pairs)
}

// overlay adds NAME=VALUE to a flag, in the place of what it has under the same name.
func overlay(flag *pflag.Flag, pairs []string) error {
	list := flag.Value.(pflag.SliceValue)
	nameOf := func(pair string) string { name, _, _ := strings.Cut(pair, "="); return name }
	old := slices.DeleteFunc(list.GetSlice(), func(have string) bool {
		return slices.ContainsFunc(pairs, func(pair string) bool { return nameOf(pair) == nameOf(have) })
	})
	return list.Replace(append(old, pairs...))
}

// override puts a flag of the command line over what a file says.
func (j jobField) override(flag *pflag.Flag) error {
	list, ok := flag.Value.(pflag.SliceValue)
	switch {
	case ok && givesNames(flag):
		return overlay(j.flag, list.GetSlice())
	case ok:
		return j.flag.Value.(pflag.SliceValue).Replace(list.GetSlice())
	}
	return j.flag.Value.Set(flag.Value.String())
}

// rebased is a value with the file that it names taken from dir, the directory of the file of jobs.
func rebased(flag, text, dir string) string {
	under := func(path string) string {
		if dir == "" || path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	switch flag {
	case "file", "stdin-file", "prompt-file":
		return under(text)
	case "secret", "secret-file":
		if path, ok := strings.CutPrefix(text, "@"); ok {
			return "@" + under(path)
		}
	}
	return text
}

// texts are those of a list.
func texts(node ast.Node) (list []string, err error) {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		return nil, errors.New("write a list, as in: [one, two]")
	}
	for _, v := range seq.Values {
		text, err := written(v)
		if err != nil {
			return nil, wrongAt(v, "%v", err)
		}
		list = append(list, text)
	}
	return list, nil
}

// written is what is written, also where YAML would read a number: 0644 stays 0644.
func written(node ast.Node) (string, error) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, nil
	case *ast.AliasNode, *ast.AnchorNode:
		return "", errors.New("anchors and aliases are not read; put what jobs share under defaults")
	}
	return "", errors.New("write one word or text; in quotes where it begins with a special character")
}
