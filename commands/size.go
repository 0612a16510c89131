package commands

import (
	"fmt"
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

// SizeOf says how much of all is there, both in the unit of the larger: 12.0 of 300.0 MiB.
func SizeOf(n, all int64) string {
	for _, unit := range units {
		if size := float64(int64(1) << unit.bits); float64(all) >= size {
			return fmt.Sprintf("%.1f of %.1f %s", float64(n)/size, float64(all)/size, unit.name)
		}
	}
	return fmt.Sprintf("%d of %d bytes", n, all)
}

// SizeInWords writes a number of bytes as a sentence has it: 64 MiB.
func SizeInWords(n int64) string { return amount(n, "bytes") }
