package commands

import (
	"strconv"
	"strings"
)

// units of sizes, the largest first.
var units = []struct {
	name string
	bits int
}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}}

// ReadSize reads a number of bytes such as 512MiB, 2GiB or 1048576.
func ReadSize(text string) (int64, error) {
	shift := 0
	for _, unit := range units {
		if number, ok := strings.CutSuffix(text, unit.name); ok {
			text, shift = number, unit.bits
		}
	}
	n, err := strconv.ParseUint(text, 10, 63-shift)
	return int64(n) << shift, err
}

// SizeText writes a number of bytes as [ReadSize] reads it.
func SizeText(n int64) string {
	for _, unit := range units {
		if size := int64(1) << unit.bits; n > 0 && n%size == 0 {
			return strconv.FormatInt(n>>unit.bits, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// SizeInWords writes a number of bytes as a sentence has it: 64 MiB.
func SizeInWords(n int64) string { return amount(n, "bytes") }
