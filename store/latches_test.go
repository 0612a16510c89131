package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// Only a word with a higher number changes what may start.
func TestAnOldFreezeChangesNothing(t *testing.T) {
	t.Parallel()
	s := scene{t, storetest.NewPair(t).Spoke}
	for _, tt := range []struct {
		number          int64
		frozen, changed bool
		now             int
	}{{5, true, true, 1}, {5, false, false, 1}, {4, false, false, 1}, {7, true, false, 1}, {6, false, false, 1}, {8, false, true, 0}, {7, true, false, 0}} {
		changed, err := s.DB.NoteFreeze(t.Context(), s.Conn, s.Peer.Key, commands.Freeze{Number: tt.number, Frozen: tt.frozen, Reason: "why"}, []byte{byte(tt.number)})

		require.NoError(t, err)
		require.Equal(t, tt.changed, changed, "%+v", tt)
		require.Equal(t, tt.now, s.Count(t, `SELECT count(*) FROM latches WHERE frozen AND envelope <> ''`), "%+v", tt)
		require.Equal(t, 1-tt.now, s.Count(t, `SELECT count(*) FROM grants_in_force`), "%+v", tt)
	}
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM audit WHERE action IN ('peer.frozen', 'peer.unfrozen')`))
}

// Numbers of freezes grow, also over a restore.
func TestFreezesAreNumberedUpwards(t *testing.T) {
	t.Parallel()
	hub := storetest.NewPair(t).Hub
	last := int64(0)
	now := func() *commands.Freeze {
		f, err := hub.DB.Freezes(t.Context())
		require.NoError(t, err)
		v := f.Of(hub.Conn.ID)
		if v != nil {
			require.Greater(t, v.Number, last)
			require.NoError(t, (&commands.Heartbeat{IntervalMS: 1000, Connection: commands.ConnectionView{State: commands.ConnActive, Freeze: v}}).Validate())
			last = v.Number
		}
		return v
	}
	require.Nil(t, now())
	require.NoError(t, hub.Exec(`INSERT INTO freezes (workspace, scope, target, reason, actor) VALUES ('main', 'connection', $1, 'one', 'uid:0')`, hub.Conn.ID))
	v := now()
	require.True(t, v.Frozen)
	require.Equal(t, "one", v.Reason)
	require.WithinDuration(t, time.Now(), time.UnixMilli(v.Since), time.Minute)
	require.NoError(t, hub.Exec(`UPDATE freezes SET target = $1`, storetest.NewID()))
	require.False(t, now().Frozen, "it is another one's")
	require.NoError(t, hub.Exec(`INSERT INTO freezes (workspace, scope, target, reason, actor) VALUES ('', 'instance', '', 'all', 'uid:0')`))
	require.Equal(t, "all", now().Reason)
	require.NoError(t, hub.Exec(`UPDATE freeze_numbers SET last = 3`), "as a backup has it")
	restored, err := hub.DB.BeginIncarnation(t.Context(), []string{"another"}, "next")
	require.NoError(t, err)
	require.True(t, restored)
	require.True(t, now().Frozen)
}

// Over a new link nothing starts before what the peer has sent is stored.
func TestStartsWaitForTheNewestControl(t *testing.T) {
	t.Parallel()
	s := storetest.NewPair(t).Spoke
	may := func() int { return s.Count(t, `SELECT count(*) FROM grants_in_force`) }
	let := func(controls int64, is bool) {
		ended, err := s.DB.LetStart(t.Context(), s.Conn.ID, controls)
		require.NoError(t, err)
		require.Equal(t, is, ended)
	}
	require.Equal(t, 1, may())
	require.NoError(t, s.DB.HoldStarts(t.Context(), s.Conn.ID, time.Hour))
	require.Zero(t, may())

	let(4, false)
	require.Zero(t, may())
	require.NoError(t, s.Exec(`UPDATE sequences SET stored = '{[1,4),[5,9)}'`))
	let(4, false)
	require.Zero(t, may())
	require.NoError(t, s.Exec(`UPDATE sequences SET stored = '{[1,9)}'`))
	let(4, true)
	require.Equal(t, 1, may())

	require.NoError(t, s.DB.HoldStarts(t.Context(), s.Conn.ID, time.Millisecond))
	require.Eventually(t, func() bool { return may() == 1 }, time.Minute, time.Millisecond, "it ends by itself")
	require.NotEqual(t, store.Revoked, s.Conn.State)
}

// The oldest freeze of a host that holds up what a hub orders is named as the command takes it.
func TestWhatIsFrozenHere(t *testing.T) {
	t.Parallel()
	s := storetest.NewPair(t).Spoke
	held := func() *store.Hold {
		h, err := s.DB.FrozenHere(t.Context(), s.Conn.ID)
		require.NoError(t, err)
		return h
	}
	require.Nil(t, held())
	require.Empty(t, held().Why())
	for scope, f := range map[string][3]string{"instance": {"", "instance", ""}, "workspace": {"main", "workspace", ""}, "lane:default": {"main", "lane", "default"},
		"connection:" + s.Conn.Name: {"main", "connection", s.Conn.ID}, "": {"main", "lane", "slow"}} {
		require.NoError(t, s.Exec(`DELETE FROM freezes`))
		require.NoError(t, s.Exec(`INSERT INTO freezes (workspace, scope, target, reason, actor) VALUES ($1, $2, $3, 'my turn', 'uid:0')`, f[0], f[1], f[2]))
		if scope == "" {
			require.Nil(t, held(), "of another lane")
			continue
		}
		require.Equal(t, scope, held().Scope)
		require.Equal(t, "frozen by uid:0: my turn", held().Why())
	}
}

// What waited for a word of a connection waits no more when that ends; what a person has frozen stays so for who comes back.
func TestNobodyWaitsForAConnectionThatHasEnded(t *testing.T) {
	t.Parallel()
	for by, stays := range map[string]int{"restore": 0, "uid:0": 1} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s := storetest.NewPair(t).Spoke
			other := storetest.NewID()
			for _, conn := range []string{s.Conn.ID, other} {
				require.NoError(t, s.Exec(`INSERT INTO freezes (workspace, scope, target, reason, actor) VALUES ('main', 'connection', $1, 'why', $2)`, conn, by))
			}

			_, err := s.DB.SetConnectionState(t.Context(), s.Conn.ID, store.Revoked, "moved", "uid:0", nil)

			require.NoError(t, err)
			require.Equal(t, stays, s.Count(t, `SELECT count(*) FROM freezes WHERE target = $1`, s.Conn.ID))
			require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM freezes WHERE target = $1`, other))
		})
	}
}
