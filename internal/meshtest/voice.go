package meshtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/faulty"
	"github.com/spawnmesh/spawnmesh/internal/forge"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A Voice is one side of a connection in the wrong hands.
type Voice struct{ forge.Voice }

// A Bad is a message that must be refused, whoever gets it.
type Bad = forge.Bad

// A Proxy stands between a spoke and its hub.
type Proxy = faulty.Proxy

// A Way is a direction through a proxy.
type Way = faulty.Way

// The two ways through a proxy.
const (
	ToHub   = faulty.ToHub
	ToSpoke = faulty.ToSpoke
)

// NewID returns a fresh id for a message or a task.
func NewID() string { return forge.NewID() }

// NewProxy starts a proxy to target, which ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := faulty.New(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// Seal signs a message as its owner would. change may be nil.
func (v *Voice) Seal(t testing.TB, body commands.Body, re *signing.Ref, change func(*signing.Header)) signing.Sealed {
	t.Helper()
	return v.Voice.Seal(body, re, change)
}

// Valued signs a spawn with values for its variables as its owner would.
func (v *Voice) Valued(t testing.TB, spawn *commands.Spawn, values ...string) signing.Sealed {
	t.Helper()
	id := NewID()
	return v.Voice.Seal(v.Voice.Valued(spawn, id, values...), nil, func(h *signing.Header) { h.ID = id })
}

// Bad returns every way to get a message wrong, made from messages that good makes.
func (v *Voice) Bad(t testing.TB, good func() (commands.Body, *signing.Ref)) []Bad {
	t.Helper()
	return v.Voice.Bad(good)
}
