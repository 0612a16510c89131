package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// list names the tests that make test leaves to make test-long, and those that are larger there.
//
//go:embed long.txt
var list string

// A long test is one line of the list.
type long struct {
	pkg    string // its directory
	name   string
	larger bool // it runs in both, and is larger in make test-long
}

// divide returns go test's arguments for one half of the tests: the quick half runs what is not only in the list, the
// long half what is in it. The first argument says which; any other leaves args as they are.
func divide(args []string) ([]string, error) {
	if len(args) == 0 || args[0] != "-quick" && args[0] != "-long" {
		return args, nil
	}
	all, err := read(list)
	if err != nil {
		return nil, err
	}
	half, args := args[0], args[1:]
	if half == "-quick" {
		return append([]string{"-skip", pattern(slices.DeleteFunc(all, func(l long) bool { return l.larger }))}, args...), nil
	}
	args = append([]string{"-run", pattern(all)}, args...)
	for _, l := range all {
		if dir := "./" + l.pkg; !slices.Contains(args, dir) {
			args = append(args, dir)
		}
	}
	return args, nil
}

// pattern fits the tests and no others.
func pattern(tests []long) string {
	var names []string
	for _, l := range tests {
		names = append(names, l.name)
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// read reads lines of a package, a test, and "larger" where make test runs it, too, and smaller.
func read(text string) ([]long, error) {
	var all []long
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		larger := len(words) == 3 && words[2] == "larger"
		if len(words) != 2 && !larger {
			return nil, fmt.Errorf("long.txt: %q is not a package and a test", strings.TrimSpace(line))
		}
		all = append(all, long{words[0], words[1], larger})
	}
	return all, nil
}
