package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// testsOf lists the tests of breaks by their packages.
func testsOf(breaks []Break) map[string][]string {
	tests := map[string][]string{}
	for _, b := range breaks {
		if !slices.Contains(tests[b.Package], b.Test) {
			tests[b.Package] = append(tests[b.Package], b.Test)
		}
	}
	return tests
}

// unbroken fails unless all tests of the breaks pass as the code is: one that fails anyway catches nothing.
func unbroken(ctx context.Context, root string, breaks []Break) error {
	tests := testsOf(breaks)
	var failed []error
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		out, err := goTest(ctx, root, "", pkg, tests[pkg])
		if err != nil {
			failed = append(failed, fmt.Errorf("%s, with nothing broken: %s\n%s", pkg, strings.Join(failures(out), ", "), tail(out)))
		}
	}
	return errors.Join(failed...)
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// failures lists the tests that failed, by what go test said.
func failures(out string) (list []string) {
	for _, m := range failure.FindAllStringSubmatch(out, -1) {
		list = append(list, m[1])
	}
	return list
}
