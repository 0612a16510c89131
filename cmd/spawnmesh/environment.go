package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke"
)

// environment reads the flags that set variables. Errors show no values. Notes are about
// secrets that output is not searched for.
func (f *spawnFlags) environment() (notes []string, err error) {
	vars, values, err := plainVariables(f.env)
	if err != nil {
		return nil, err
	}
	for _, flag := range []struct {
		name, as string
		pairs    []string
	}{{"--secret", commands.EnvSecret, f.secrets}, {"--secret-file", commands.EnvFile, f.secretFiles}} {
		for _, pair := range flag.pairs {
			name, value, err := secretValue(flag.name, pair)
			if err != nil {
				return nil, err
			}
			switch {
			case value == "":
				notes = append(notes, fmt.Sprintf("the value of %s %s is empty", flag.name, name))
			case !spoke.Hides(value):
				notes = append(notes, fmt.Sprintf("the value of %s %s is too short to be looked for (less than %d bytes): where the agent writes it, it stays in the output", flag.name, name, spoke.LeastSecret))
			}
			if flag.as == commands.EnvSecret { // a variable that ends in a line feed is hardly what the file is for
				value = strings.TrimSuffix(value, "\n")
			}
			vars, values = append(vars, commands.EnvVar{Name: name, As: flag.as}), append(values, commands.NewSecret(value))
		}
	}
	f.req.Spawn.Env, f.req.Values = vars, values
	return notes, nil
}

// plainVariables reads NAME=VALUE pairs.
func plainVariables(pairs []string) ([]commands.EnvVar, commands.Values, error) {
	var vars []commands.EnvVar
	var values commands.Values
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, nil, misuse("--env wants NAME=VALUE and got one without =")
		}
		vars, values = append(vars, commands.EnvVar{Name: name}), append(values, commands.NewSecret(value))
	}
	return vars, values, nil
}

// secretValue reads NAME=@FILE or NAME=env:VARIABLE. A value on the command line is not
// taken: everybody on this host could read it.
func secretValue(flag, pair string) (name, value string, err error) {
	name, from, ok := strings.Cut(pair, "=")
	path, file := strings.CutPrefix(from, "@")
	variable, env := strings.CutPrefix(from, "env:")
	switch {
	case !ok || !file && !env:
		return "", "", misuse("%s wants NAME=@FILE or NAME=env:VARIABLE; a value itself would be seen by others on this host", flag)
	case env:
		value, ok := os.LookupEnv(variable)
		if !ok {
			return "", "", misuse("%s %s: there is no variable %s here", flag, name, commands.Clip(variable))
		}
		return name, value, nil
	}
	value, err = source{what: flag + " " + name, path: path, most: commands.MaxEnvBytes, larger: tooLarge}.read(nil)
	return name, value, err
}
