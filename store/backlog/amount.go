package backlog

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// An Amount is a quantity of some dimension (usd, tokens, minutes, …) in
// millionths of its unit, so that sums are exact. Text and JSON show units.
type Amount int64

// Unit is an Amount of one.
const Unit Amount = 1_000_000

// maxAmount keeps sums of many amounts far from overflow.
const maxAmount = Amount(math.MaxInt64 / 1000)

// ParseAmount reads a decimal number with up to six places, not below 0.
func ParseAmount(s string) (Amount, error) {
	whole, part, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	digits := part + strings.Repeat("0", max(0, 6-len(part)))
	m, err2 := strconv.ParseUint(digits, 10, 63)
	if err != nil || err2 != nil || len(part) > 6 || strings.HasSuffix(s, ".") || n > uint64(maxAmount/Unit) {
		return 0, commands.Refuse(commands.Validation, "amount %q is not a number from 0 to %d with at most six decimals", commands.Clip(s), maxAmount/Unit)
	}
	return Amount(n)*Unit + Amount(m), nil
}

// String writes a in units without needless zeros.
func (a Amount) String() string {
	sign := ""
	if a < 0 {
		sign, a = "-", -a
	}
	if a%Unit == 0 {
		return sign + strconv.FormatInt(int64(a/Unit), 10)
	}
	return sign + strings.TrimRight(fmt.Sprintf("%d.%06d", a/Unit, a%Unit), "0")
}

// MarshalJSON writes a as a JSON number in units.
func (a Amount) MarshalJSON() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalJSON reads a JSON number in units.
func (a *Amount) UnmarshalJSON(raw []byte) error {
	var n json.Number
	if err := json.Unmarshal(raw, &n); err != nil {
		return commands.Refuse(commands.Validation, "amount %s is not a number", commands.Clip(string(raw)))
	}
	got, err := ParseAmount(n.String())
	*a = got
	return err
}

// sizes tell by dimension about how large amounts are: k for those from 16^k to
// below 16^(k+1) millionths. Tasks of about the same cost share a class.
type sizes map[string]int

func sizesOf(estimate map[string]Amount) sizes {
	m := sizes{}
	for d, a := range estimate {
		if a > 0 {
			m[d] = (bits.Len64(uint64(a)) - 1) / 4
		}
	}
	return m
}

// amounts are quantities by dimension, as the database keeps them.
type amounts map[string]int64

func rawAmounts(m map[string]Amount) amounts {
	raw := amounts{}
	for d, a := range m {
		raw[d] = int64(a)
	}
	return raw
}

func (m amounts) units() map[string]Amount {
	if len(m) == 0 {
		return nil
	}
	list := map[string]Amount{}
	for d, n := range m {
		list[d] = Amount(n)
	}
	return list
}
