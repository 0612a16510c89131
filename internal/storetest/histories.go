package storetest

import (
	"cmp"
	"flag"
	"os"
	"strconv"
	"sync"
)

var setHistories sync.Once

// Histories sets how many histories the property tests of a package try, of how many steps each: make chaos asks for
// more than the default, with SPAWNMESH_MODEL_CHECKS.
func Histories(checks, steps int) {
	setHistories.Do(func() {
		settings := map[string]string{
			"rapid.checks":     cmp.Or(os.Getenv("SPAWNMESH_MODEL_CHECKS"), strconv.Itoa(checks)),
			"rapid.steps":      strconv.Itoa(steps),
			"rapid.nofailfile": "true",
		}
		for name, value := range settings {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	})
}
