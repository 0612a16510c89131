package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A sealOf is what an envelope says of how it was sealed.
type sealOf struct {
	Tree       struct{ Size, Index int }
	Signatures []struct{ KeyID, Sig string }
}

func sealsOf(t *testing.T, envelopes [][]byte) (seals []sealOf) {
	t.Helper()
	for _, e := range envelopes {
		var s sealOf
		require.NoError(t, json.Unmarshal(e, &s))
		seals = append(seals, s)
	}
	return seals
}

// sendStatus sends n questions in one transaction.
func sendStatus(t *testing.T, s *storetest.Side, n int) {
	t.Helper()
	require.NoError(t, s.DB.Tx(t.Context(), "asking", func(_ context.Context, tx *store.Tx) error {
		for range n {
			tx.Send(store.Draft{Conn: s.Conn.ID, Body: &commands.Status{Task: storetest.NewID()}, Life: time.Hour})
		}
		return nil
	}))
}

func TestATransactionHasOneSignature(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	sendStatus(t, p.Hub, 5)
	sendStatus(t, p.Hub, 1)

	due := p.Hub.Due(t)

	seals := sealsOf(t, due)
	require.Len(t, seals, 6)
	for i, s := range seals[:5] {
		require.Equal(t, struct{ Size, Index int }{5, i}, s.Tree)
		require.Equal(t, seals[0].Signatures, s.Signatures)
	}
	require.Equal(t, struct{ Size, Index int }{1, 0}, seals[5].Tree)
	require.NotEqual(t, seals[0].Signatures, seals[5].Signatures)
	// Each of them arrives, also without the others and in any order.
	for _, i := range []int{3, 0, 5, 4} {
		m := p.Spoke.Read(t, due[i])
		take(t, p.Spoke, m)
		require.Empty(t, m[0].Code, m[0].Why)
	}
}

// What is sealed anew is sealed together, too.
func TestMessagesAreSealedAnewTogether(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	sendStatus(t, p.Hub, 3)
	p.Hub.Due(t)
	theirs := commands.Numbering{Stored: commands.Numbers{Through: 5}, Held: []commands.Held{{Seq: 1, SHA256: string(make([]byte, 64))}}}

	a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, theirs, 0, 20)

	require.NoError(t, err)
	require.Equal(t, 3, a.Renumbered)
	due := reopened(t, p.Hub)
	for i, s := range sealsOf(t, due) {
		require.Equal(t, struct{ Size, Index int }{3, i}, s.Tree)
	}
	require.Len(t, p.Spoke.Read(t, due...), 3)
}

// What an earlier version has sealed, and was not confirmed before the change, is in no
// way of what is sealed anew beside it: also where there is more of it than is looked at
// in one step.
func TestWhatAnotherVersionSealedStays(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	sendStatus(t, p.Hub, 120)
	due := p.Hub.Due(t)
	old := bytes.Replace(due[0], []byte(`.v2+json`), []byte(`.v1+json`), 1)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET envelope = $1 WHERE seq <= 110`, old))
	theirs := commands.Numbering{Stored: commands.Numbers{Through: 200}, Held: []commands.Held{{Seq: 1, SHA256: strings.Repeat("ab", 32)}}}

	a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, theirs, 0, 20)

	require.NoError(t, err)
	require.Equal(t, 10, a.Renumbered)
	require.Equal(t, 110, p.Hub.Count(t, `SELECT count(*) FROM open_outbox WHERE envelope = $1 AND seq <= 110`, old))
	require.Equal(t, 10, p.Hub.Count(t, `SELECT count(*) FROM open_outbox WHERE seq > $1`, a.Base))
	_, err = p.Spoke.Verifier.Open(old, time.Now())
	require.Equal(t, signing.EnvType, commands.CodeOf(err))
}
