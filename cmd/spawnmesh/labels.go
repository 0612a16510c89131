package main

import (
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// labelsOf reads NAME=VALUE pairs, as the command line has them after what.
func labelsOf(what string, pairs []string) (commands.Labels, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	labels := commands.Labels{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, misuse("%s%s has no =; it wants NAME=VALUE, where VALUE may be empty", what, commands.Clip(pair))
		}
		if _, twice := labels[name]; twice {
			return nil, misuse("%s%s is given twice; an agent has one value for each name", what, commands.Clip(name))
		}
		labels[name] = value
	}
	return labels, labels.Check()
}
