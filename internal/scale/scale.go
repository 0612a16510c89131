// Package scale reads from the environment how large a test is: small in make test, large in make chaos.
//
// Its tests are those of store/backlog and of internal/meshtest, which are as large as it says.
package scale

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

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

// Seed returns the number in the environment variable name, and another one each time when there is none. It logs
// how to have the same one again.
func Seed(t testing.TB, name string) uint64 {
	t.Helper()
	seed := Of(t, name, rand.IntN(1e9))
	t.Logf("seed %d: %s=%d repeats the choices", seed, name, seed)
	return uint64(seed)
}
