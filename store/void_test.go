package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// gapped is a pair whose spoke has stored every other one of the hub's messages, when the
// hub's database is restored: what was open has new numbers.
func gapped(t *testing.T, messages int64) (p *storetest.Pair, hears commands.Numbering) {
	p = storetest.NewPair(t)
	question(t, p.Hub, int(messages))
	var odd []int64
	for n := int64(1); n <= messages; n += 2 {
		odd = append(odd, n)
	}
	answer(t, p.Hub, odd)
	require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET stored = (SELECT range_agg(int8range(2 * n + 1, 2 * n + 2)) FROM generate_series(0, $1::int / 2 - 1) AS n)`, messages))
	said, err := p.Spoke.DB.Numbering(t.Context(), p.Spoke.Conn.ID, true, nil)
	require.NoError(t, err)
	restored := said
	restored.Stored = commands.Numbers{Through: messages + 5}
	restored.Held = []commands.Held{{Seq: 2, SHA256: strings.Repeat("ab", 32)}}
	a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, restored, 0, 20)
	require.NoError(t, err)
	require.EqualValues(t, messages/2, a.Renumbered)
	return p, said
}

// Numbers that messages had before they were sealed anew leave no gap, on neither side.
func TestNumbersThatNoMessageHasLeaveNoGap(t *testing.T) {
	t.Parallel()
	p, said := gapped(t, 20)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM confirmed, unnest(numbers)`))
	require.Equal(t, 10, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`))

	hub, err := p.Hub.DB.Numbering(t.Context(), p.Hub.Conn.ID, false, &said)
	require.NoError(t, err)
	require.Equal(t, said.Stored.Gaps, hub.Void)
	require.NoError(t, p.Spoke.DB.CloseVoid(t.Context(), p.Spoke.Peer, hub.Void))
	require.Equal(t, 10, p.Spoke.Count(t, `SELECT count(*) FROM sequences, unnest(stored)`), "it has not heard yet where the numbers go on")
	_, err = p.Spoke.DB.Compare(t.Context(), p.Spoke.Peer, hub, -1, 20)
	require.NoError(t, err)
	require.NoError(t, p.Spoke.DB.CloseVoid(t.Context(), p.Spoke.Peer, hub.Void))

	stored, err := p.Spoke.DB.StoredOf(t.Context(), p.Spoke.Conn.ID)
	require.NoError(t, err)
	require.Equal(t, commands.Numbers{Through: 19}, stored)
	hub, err = p.Hub.DB.Numbering(t.Context(), p.Hub.Conn.ID, false, &commands.Numbering{Stored: stored})
	require.NoError(t, err)
	require.Empty(t, hub.Void)
}

// What still has its number is not void, and neither is what comes behind the base.
func TestNumbersThatAreUsedAreNotVoid(t *testing.T) {
	t.Parallel()
	p, said := gapped(t, 4)
	base := int64(p.Hub.Count(t, `SELECT base FROM sequences`))
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET seq = 2 WHERE seq = $1::bigint + 1`, base))
	said.Stored = commands.Numbers{Through: base + 2, Gaps: []commands.Range{{From: 2, To: 2}, {From: 4, To: base + 1}}}

	hub, err := p.Hub.DB.Numbering(t.Context(), p.Hub.Conn.ID, false, &said)

	require.NoError(t, err)
	require.Equal(t, []commands.Range{{From: 4, To: base}}, hub.Void)
}

// A peer cannot make the set of what is stored larger by numbers that it calls void.
func TestVoidNumbersOnlyCloseGaps(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET stored = '{[1,5]}', peer_base = 100`))

	err := p.Spoke.DB.CloseVoid(t.Context(), p.Spoke.Peer, []commands.Range{{From: 10, To: 10}, {From: 20, To: 20}})

	require.NoError(t, err)
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM sequences, unnest(stored)`))
}

// A hub that was restored once more, from before the first time, has messages under numbers
// that are void to its peer. It is told that nothing is there, and does not ask for ever.
func TestAVoidNumberIsNoMessageOfTheOtherLife(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	question(t, p.Hub, 2)
	require.NoError(t, p.Spoke.Exec(`UPDATE sequences SET stored = '{[1,9]}'`))
	asks := commands.Numbering{Ask: []int64{1, 2, 12}}
	said, err := p.Spoke.DB.Numbering(t.Context(), p.Spoke.Conn.ID, true, &asks)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, seqs(said.Held))

	a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, said, 0, 20)

	require.NoError(t, err)
	require.Empty(t, a.Ask)
	require.Equal(t, store.Settled{Renumbered: 2, Base: a.Base}, a.Settled)
}

func seqs(held []commands.Held) (list []int64) {
	for h := range slices.Values(held) {
		list = append(list, h.Seq)
	}
	return list
}
