package main

import (
	"context"
	"crypto/ed25519"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The yardstick does the whole way: what it did is in both databases.
func TestThePipelineEndsWhatItSpawns(t *testing.T) {
	dir, err := tempDir("peers-test")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	hub, spoke, err := sides(t.Context(), dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, hub.close(context.Background())) }()
	defer func() { require.NoError(t, spoke.close(context.Background())) }()
	b, err := newBus(t.Context(), dir)
	require.NoError(t, err)
	defer b.close()
	p, err := newPipeline(hub, spoke, b, true)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.run(ctx) }()

	f, err := p.measure(t.Context(), 16, 300)

	require.NoError(t, err)
	stop()
	require.NoError(t, <-ran)
	require.Positive(t, f.StartP50)
	for d, sql := range map[*database]string{hub: `SELECT id FROM orders WHERE state = 'ended'`, spoke: `SELECT id FROM tasks WHERE state = 'ended'`} {
		ids, err := d.ids(t.Context(), sql)
		require.NoError(t, err)
		require.Len(t, ids, 300)
	}
}

// A raw is a message of which only the bytes matter.
type raw []byte

func (r raw) Data() []byte { return r }

// It checks what it signs: without that it would be no yardstick.
func TestThePipelineRefusesForgedMessages(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	good := seal(key, message{Kind: "spawn"})
	forged := append([]byte{}, good...)
	forged[len(forged)-2] ^= 1

	_, err = open(key, []raw{good})
	require.NoError(t, err)
	_, err = open(key, []raw{forged})
	require.ErrorContains(t, err, "wrong signature")
}
