package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// labelsOf reads NAME=VALUE pairs of --label.
func labelsOf(pairs []string) (commands.Labels, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	labels := commands.Labels{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, misuse("--label %s has no =; it wants NAME=VALUE, where VALUE may be empty", commands.Clip(pair))
		}
		if _, twice := labels[name]; twice {
			return nil, misuse("--label %s is given twice; an agent has one value for each name", commands.Clip(name))
		}
		labels[name] = value
	}
	return labels, labels.Check()
}

// labelText lists labels as people write them.
func labelText(labels commands.Labels) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, name+"="+labels[name])
	}
	return strings.Join(list, ",")
}
