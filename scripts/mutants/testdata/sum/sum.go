// Package sum is broken by the tests of mutants.
package sum

import _ "embed"

//go:embed words.txt
var words string

func sum(a, b int) int { return a + b }
