package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// days is a duration flag that also knows d for days: "7d", "90s".
type days time.Duration

// String writes d as people would; "0" makes help texts leave out the default.
func (d *days) String() string {
	if *d == 0 {
		return "0"
	}
	return commands.Lasting(time.Duration(*d))
}

// Type names the value in help texts.
func (d *days) Type() string { return "DURATION" }

// Set reads the value of a flag.
func (d *days) Set(s string) error {
	v, err := time.ParseDuration(s)
	if n, ok := strings.CutSuffix(s, "d"); ok {
		var count uint64
		count, err = strconv.ParseUint(n, 10, 16)
		v = time.Duration(count) * 24 * time.Hour
	}
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration such as 90s, 15m, 2h or 7d", s)
	}
	*d = days(v)
	return nil
}
