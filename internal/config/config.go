// Package config finds the settings of a command: its flags, whose values may also
// come from variables of the environment and from a file. There is no list of
// settings but the flags.
package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Where a value comes from, the strongest first.
const (
	Flag     = "flag"
	Variable = "variable"
	File     = "file"
	Default  = "default"
)

// A Setting is a value, and where it comes from.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
	Where  string `json:"where,omitempty"` // name of the variable, or file:line
}

// VariableOf returns the variable that sets a flag.
func VariableOf(flag string) string {
	return "SPAWNMESH_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Load gives each flag that is not on the command line the value of its variable or,
// where that is not set or empty, of the file at path, which need not exist. It says
// where each value comes from. What cannot be a setting or its value is
// [commands.Validation]; of is the command that errors name.
func Load(flags *pflag.FlagSet, getenv func(string) string, path, of string) ([]Setting, error) {
	file, raw, err := read(path)
	if err != nil {
		return nil, err
	}
	k := koanf.New("\x00") // no name of a setting is a path
	if err := k.Load(rawbytes.Provider(raw), file); err != nil {
		return nil, err
	}
	for _, key := range file.keys {
		if flags.Lookup(key) == nil {
			return nil, commands.Refuse(commands.Validation, "%s: %q is no setting of %s", file.at(key), commands.Clip(key), of).
				Hinting("a setting has the name of its flag, without the dashes; see: spawnmesh %s --help", of)
		}
	}
	if err := k.Load(variables(flags, getenv), nil); err != nil {
		return nil, fmt.Errorf("reading settings from the environment: %w", err)
	}
	if err := k.Load(posflag.Provider(flags, k.Delim(), k), nil); err != nil {
		return nil, fmt.Errorf("reading settings from flags: %w", err)
	}
	return apply(flags, getenv, k, file)
}

// variables reads the variables of flags that are set.
func variables(flags *pflag.FlagSet, getenv func(string) string) koanf.Provider {
	names := map[string]string{}
	var environ []string
	flags.VisitAll(func(f *pflag.Flag) {
		name := VariableOf(f.Name)
		if v := getenv(name); v != "" {
			names[name] = f.Name
			environ = append(environ, name+"="+v)
		}
	})
	return env.Provider("\x00", env.Opt{
		EnvironFunc:   func() []string { return environ },
		TransformFunc: func(name, v string) (string, any) { return names[name], v },
	})
}

// apply sets the flags that are not on the command line.
func apply(flags *pflag.FlagSet, getenv func(string) string, k *koanf.Koanf, file *file) (list []Setting, err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if err != nil {
			return
		}
		s := Setting{Name: f.Name, Source: Default}
		switch variable := VariableOf(f.Name); {
		case f.Changed:
			s.Source, s.Where = Flag, "--"+f.Name
		case getenv(variable) != "":
			s.Source, s.Where = Variable, variable
		case file.lines[f.Name] != 0:
			s.Source, s.Where = File, file.at(f.Name)
		}
		if s.Source == Variable || s.Source == File {
			if e := f.Value.Set(k.String(f.Name)); e != nil {
				err = s.wrong(k.String(f.Name), e)
			}
		}
		s.Value = shown(f.Value)
		list = append(list, s)
	})
	return list, err
}

// shown is a value as a file or a variable would have it.
func shown(v pflag.Value) string {
	if list, ok := v.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return v.String()
}

// wrong says that a value is none of its setting.
func (s Setting) wrong(value string, err error) error {
	return commands.Refuse(commands.Validation, "%s: %s cannot be %q", s.Where, s.Name, commands.Clip(value)).Hinting("%v", err)
}

// Explain names, as the hint of an error about flags, those of them whose values come from
// elsewhere.
func Explain(err error, list []Setting) error {
	r, ok := errors.AsType[*commands.Refused](err)
	if !ok || r.Code != commands.Validation {
		return err
	}
	var from []string
	for _, s := range list {
		if (s.Source == Variable || s.Source == File) && names(r.Why, "--"+s.Name) {
			from = append(from, fmt.Sprintf("%s: %s is %q", s.Where, s.Name, commands.Clip(s.Value)))
		}
	}
	if len(from) == 0 {
		return err
	}
	more := *r
	more.Hint = strings.Join(from, "; ")
	return &more
}

// names reports whether text has the flag as a word.
func names(text, flag string) bool {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return !(r == '-' || r >= 'a' && r <= 'z') }) {
		if word == flag {
			return true
		}
	}
	return false
}
