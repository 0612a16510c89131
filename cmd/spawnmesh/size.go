package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/spawnmesh/spawnmesh/commands"
)

// bytesOf is a flag that is a size, as in a policy: 64MiB, or a number of bytes.
type bytesOf int64

var _ pflag.Value = (*bytesOf)(nil)

// sizeVar makes a flag of n, which is the default now.
func sizeVar(n *int64, otherwise int64) *bytesOf {
	*n = otherwise
	return (*bytesOf)(n)
}

// String writes it as Set reads it.
func (b *bytesOf) String() string { return commands.SizeText(int64(*b)) }

// Type names the value in help texts.
func (b *bytesOf) Type() string { return "SIZE" }

// Set reads the value of a flag.
func (b *bytesOf) Set(s string) error {
	n, err := commands.ReadSize(s)
	if err != nil {
		return fmt.Errorf("%q is not a size such as 64MiB, 2GiB or a number of bytes", s)
	}
	*b = bytesOf(n)
	return nil
}
