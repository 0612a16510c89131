// Package scale reads from the environment how large a test is: small in make test, larger in make test-long, which sets
// SPAWNMESH_LONG, and as large as one wants in make chaos.
//
// Its tests are those of store/backlog and of internal/meshtest, which are as large as it says.
package scale

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// Long says whether make test-long runs.
func Long() bool { return os.Getenv("SPAWNMESH_LONG") != "" }

// Larger returns what Of does, and long in place of small in make test-long. Such a test is in scripts/gotest/long.txt.
func Larger(t testing.TB, name string, small, long int) int {
	t.Helper()
	if Long() {
		small = long
	}
	return Of(t, name, small)
}

// Of returns the number in the environment variable name, and small when there is none.
func Of(t testing.TB, name string, small int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return small
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return n
}

// Some returns n of a list, chosen by a seed, and all of it in make test-long.
func Some[T any](t testing.TB, n int, list []T) []T {
	t.Helper()
	if Long() {
		return list
	}
	list = slices.Clone(list)
	rand.New(rand.NewPCG(Seed(t, "SPAWNMESH_CASES_SEED"), 0)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(n, len(list))]
}

// SomeCases does that with the cases of a table.
func SomeCases[T any](t testing.TB, n int, table map[string]T) map[string]T {
	t.Helper()
	some := map[string]T{}
	for _, name := range Some(t, n, slices.Sorted(maps.Keys(table))) {
		some[name] = table[name]
	}
	return some
}

// Seed returns the number in the environment variable name, and another one each time when there is none. It logs
// how to have the same one again.
func Seed(t testing.TB, name string) uint64 {
	t.Helper()
	seed := Of(t, name, rand.IntN(1e9))
	t.Logf("seed %d: %s=%d repeats the choices", seed, name, seed)
	return uint64(seed)
}
