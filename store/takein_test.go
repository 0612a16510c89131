package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// take lets the side take in messages, and returns what had an effect.
func take(t *testing.T, s *storetest.Side, batch []*store.Incoming) (acted []*store.Incoming) {
	t.Helper()
	_, err := s.DB.TakeIn(t.Context(), s.Conn.ID, 20, batch, func(_ context.Context, _ *store.Tx, _ store.Standing, fresh []*store.Incoming) error {
		acted = fresh
		return nil
	})
	require.NoError(t, err)
	return slices.DeleteFunc(acted, func(m *store.Incoming) bool { return m.Code != "" }) // of a run that was undone
}

// locksAwaited counts who waits for a lock in this database.
const locksAwaited = `SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()`

// A revocation waits for effects under way, and none comes after it returned:
// not even of a message whose connection was read before it.
func TestARevocationWaitsForEffectsUnderWay(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	s := p.Spoke
	p.Order(t, nil)
	batch := s.Read(t, p.Hub.Due(t)...)
	p.Order(t, nil)
	later := s.Read(t, p.Hub.Due(t)...)
	taken, revoked := make(chan error, 1), make(chan error, 1)
	acting, goOn := make(chan bool), make(chan bool)

	go func() {
		_, err := s.DB.TakeIn(t.Context(), s.Conn.ID, 20, batch, func(context.Context, *store.Tx, store.Standing, []*store.Incoming) error {
			close(acting)
			<-goOn
			return nil
		})
		taken <- err
	}()
	<-acting
	go func() {
		_, err := s.DB.SetConnectionState(t.Context(), s.Conn.ID, store.Revoked, "enough", "test", nil)
		revoked <- err
	}()
	require.Eventually(t, func() bool { return len(revoked) > 0 || s.Count(t, locksAwaited) == 1 }, time.Minute, 10*time.Millisecond, "the revocation waits, or is over")
	require.Empty(t, revoked, "it returned before an effect that was under way")
	close(goOn)

	require.NoError(t, <-taken)
	require.NoError(t, <-revoked)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM inbox`))
	require.Empty(t, take(t, s, later))
	require.Equal(t, signing.ConnState, later[0].Code)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM inbox`))
}

// A batch is acted on as if everything were as it was; what is not has no effect all the
// same, and the rest has its own once.
func TestABatchThatIsNotAsExpected(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	s := p.Spoke
	p.Order(t, nil)
	first := p.Hub.Due(t)
	require.Len(t, take(t, s, s.Read(t, first...)), 1, "now the connection is known")
	p.Order(t, nil)
	second := p.Hub.Due(t)
	p.Order(t, nil)
	third := p.Hub.Due(t)
	both := s.Read(t, append(first, second...)...)

	acted := take(t, s, both)

	require.Equal(t, both[1:], acted)
	require.Equal(t, signing.ReplaySame, both[0].Code)
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM inbox`))

	_, err := s.DB.SetConnectionState(t.Context(), s.Conn.ID, store.Suspended, "holiday", "test", nil)
	require.NoError(t, err)
	last := s.Read(t, third...)

	require.Empty(t, take(t, s, last))
	require.Equal(t, signing.ConnState, last[0].Code)
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM inbox`))
}

// What acts before the database has said so is told the time that it is now, and acts once.
func TestTheTimeOfAnAssumptionIsThatOfNow(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	s := p.Spoke
	p.Order(t, nil)
	require.Len(t, take(t, s, s.Read(t, p.Hub.Due(t)...)), 1, "now the connection is known")
	store.AgeStandingForTest(s.DB, s.Conn.ID, time.Hour)
	p.Order(t, nil)
	batch := s.Read(t, p.Hub.Due(t)...)
	var at []time.Time

	_, err := s.DB.TakeIn(t.Context(), s.Conn.ID, 20, batch, func(_ context.Context, _ *store.Tx, from store.Standing, _ []*store.Incoming) error {
		at = append(at, from.Now)
		return nil
	})

	require.NoError(t, err)
	require.Len(t, at, 1)
	now, err := s.DB.Now(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, now, at[0], 10*time.Minute)
}

// A message that leaves too many gaps is not stored, also of a connection that is known well.
func TestTooManyGapsOfAKnownConnection(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	s := p.Hub
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "saying something", func(_ context.Context, tx *store.Tx) error {
		for range 3 {
			tx.Send(store.Draft{Conn: p.Spoke.Conn.ID, Body: &commands.Accepted{Task: storetest.NewID(), State: commands.Queued}, Re: &signing.Ref{ID: storetest.NewID(), SHA256: strings.Repeat("ab", 32)}})
		}
		return nil
	}))
	said := p.Spoke.Due(t)
	require.Len(t, take(t, s, s.Read(t, said[0])), 1, "now the connection is known")
	require.NoError(t, s.Exec(`UPDATE sequences SET stored = stored + (SELECT range_agg(int8range(2 * n, 2 * n + 1)) FROM generate_series(1000, 1000 + $1::int - 2) AS n)`, commands.MaxMissing))
	gap, next := s.Read(t, said[2]), s.Read(t, said[1])

	require.Empty(t, take(t, s, gap))
	require.Equal(t, commands.Rate, gap[0].Code)
	require.Len(t, take(t, s, next), 1)
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM inbox`))
}

// The id of a message is remembered as long as anybody's clock could let the
// message in.
func TestAMessageIsKnownUntilNobodyAcceptsItAnyMore(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		since string // its expiry
		known bool
	}{
		"while clocks may differ": {"4 minutes", true},
		"not for ever":            {"2 days", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			s := p.Spoke
			p.Order(t, nil)
			envelopes := p.Hub.Due(t)
			require.Len(t, take(t, s, s.Read(t, envelopes...)), 1)
			require.NoError(t, s.Exec(`UPDATE inbox SET exp = now() - $1::text::interval`, tt.since))

			prune(t, s)

			require.Equal(t, tt.known, s.Count(t, `SELECT count(*) FROM inbox`) == 1)
			again := s.Read(t, envelopes...)
			take(t, s, again)
			require.Equal(t, tt.known, again[0].Code == signing.ReplaySame, "%s", again[0].Code)
		})
	}
}

// What a peer answers or confirms closes what was sent to it, and nothing that
// was sent to somebody else.
func TestAPeerClosesOnlyWhatWasSentToIt(t *testing.T) {
	t.Parallel()
	const open = `SELECT count(*) FROM open_outbox WHERE conn = $1`
	for name, tt := range map[string]struct {
		own int // of its own messages stay open
		say func(*testing.T, fleet, *signing.Ref)
	}{
		"by an answer": {1, func(t *testing.T, f fleet, re *signing.Ref) {
			require.NoError(t, f.Spoke.DB.Tx(t.Context(), "answering", func(_ context.Context, tx *store.Tx) error {
				tx.Send(store.Draft{Conn: f.Spoke.Conn.ID, Body: &commands.Accepted{Task: storetest.NewID(), State: commands.Queued}, Re: re})
				return nil
			}))
			take(t, f.Hub, f.Hub.Read(t, f.Spoke.Due(t)...))
		}},
		"by its numbers": {0, func(t *testing.T, f fleet, _ *signing.Ref) {
			require.NoError(t, f.Hub.DB.Confirm(t.Context(), f.Hub.Peer, commands.Numbers{Through: 1}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.Order(t, nil)
			f.Order(t, func(o *store.SpawnOrder) { o.Conn = f.cellar })
			var re signing.Ref
			require.NoError(t, f.Hub.DB.Read(t.Context(), "reading the order", func(ctx context.Context, conn *pgxpool.Conn) error {
				return conn.QueryRow(ctx, `SELECT command::text, encode(command_digest, 'hex') FROM mirrors WHERE conn = $1`, f.cellar).Scan(&re.ID, &re.SHA256)
			}))

			tt.say(t, f, &re)

			require.Equal(t, 1, f.Hub.Count(t, open, f.cellar))
			require.Equal(t, tt.own, f.Hub.Count(t, open, f.Hub.Conn.ID))
		})
	}
}

// A connection is served by one process, and by the next one once that has been
// silent for as long as its lease.
func TestOneProcessServesAConnection(t *testing.T) {
	t.Parallel()
	db := storetest.NewPair(t).Hub
	ours := func(process string) bool {
		list, err := db.DB.Serve(t.Context(), process)
		require.NoError(t, err)
		require.Len(t, list, 1)
		return list[0].Ours
	}

	require.True(t, ours("first"))
	require.False(t, ours("second"))
	require.True(t, ours("first"), "it renews")
	require.NoError(t, db.Exec(`UPDATE serving SET until = clock_timestamp() - interval '1 second'`))
	require.True(t, ours("second"))
	require.False(t, ours("first"), "it has lost the connection")
}

// The lease in a database that was copied or moved is of a process that has ended, or of
// the original.
func TestWhoBeginsServesAtOnce(t *testing.T) {
	t.Parallel()
	s := storetest.NewPair(t).Spoke
	_, err := s.DB.Serve(t.Context(), "before")
	require.NoError(t, err)

	_, err = s.DB.BeginIncarnation(t.Context(), []string{""}, "the first one")
	require.NoError(t, err)

	list, err := s.DB.Serve(t.Context(), "after")
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, list[0].Ours)
}

// Orders wait in one queue, and kills and questions pass them in the other: however
// many of them, all are stored.
func TestWhatOvertakesABacklogIsStored(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	s := p.Spoke
	const n = 2*commands.MaxMissing + 400
	for range n {
		p.Order(t, nil)
	}
	var early, late []*store.Incoming
	for len(early)+len(late) < n {
		for _, m := range s.Read(t, p.Hub.Due(t)...) {
			if m.Header.Seq%2 == 1 {
				late = append(late, m)
			} else {
				early = append(early, m)
			}
		}
	}

	for _, list := range [][]*store.Incoming{early, late} {
		for batch := range slices.Chunk(list, 256) {
			require.Len(t, take(t, s, batch), len(batch))
		}
	}

	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM sequences, unnest(stored)`))
}
