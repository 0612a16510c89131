package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// askedOf says what an order demands of its spoke, and which variables it sets: names only.
func askedOf(spec json.RawMessage) (list pairs) {
	var s commands.Spawn
	_ = json.Unmarshal(spec, &s) // our own hub wrote it
	var demands []string
	if level, ok := commands.IsolationDemanded(s.Capabilities); ok && level != commands.IsolationNone {
		demands = append(demands, "isolation "+level)
	}
	for _, c := range s.Capabilities {
		if _, ok := commands.IsolationBy(c); !ok && c != commands.InlineFiles && c != commands.InputsTaken && c != commands.ReviewTaken { // what it brings is said below
			demands = append(demands, "capability "+c)
		}
	}
	named := map[string][]string{}
	for _, v := range s.Env {
		named[v.As] = append(named[v.As], v.Name)
	}
	list.add("runs in", s.Dir)
	list.add("demands", strings.Join(demands, ", "))
	list.add("variables", strings.Join(named[""], ", "))
	list.add("secrets", strings.Join(named[commands.EnvSecret], ", "))
	list.add("secret files", strings.Join(named[commands.EnvFile], ", "))
	list.add("brings", strings.Join(broughtBy(s), ", "))
	return list
}

// broughtBy names the files of an order, its standard input, its prompt and its inputs.
func broughtBy(s commands.Spawn) (list []string) {
	for _, f := range s.Files {
		list = append(list, f.Path)
	}
	if s.Stdin {
		list = append(list, "standard input")
	}
	if s.Prompt {
		list = append(list, "a prompt")
	}
	for _, in := range s.Inputs {
		list = append(list, fmt.Sprintf("%s as %s (%s, %s)", in.Kind, cmp.Or(in.Path, "the directory"), commands.SizeInWords(in.Size), in.Digest[:14]))
	}
	return list
}

// retriesOf says how often an agent may run again.
func retriesOf(spec json.RawMessage) string {
	var s commands.Spawn
	_ = json.Unmarshal(spec, &s) // our own hub wrote it
	switch {
	case s.OnLoss == commands.LossReruns:
		return fmt.Sprintf("at most %d, after a loss at most %d", s.MaxRetries, s.Losses()) + backoffWords(s.BackoffMS)
	case s.MaxRetries > 0:
		return fmt.Sprintf("at most %d", s.MaxRetries) + backoffWords(s.BackoffMS)
	}
	return ""
}

// commandLine writes what an agent runs as a person would type it.
func commandLine(spec json.RawMessage) string {
	var s commands.Spawn
	if json.Unmarshal(spec, &s) != nil || len(s.Argv) == 0 {
		return s.Runtime
	}
	return commands.ShellLine(s.Argv)
}
