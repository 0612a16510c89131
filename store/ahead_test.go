package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// later is envelope under a number as a clock would have sealed it that is ahead by so much.
func later(t *testing.T, s *storetest.Side, envelope []byte, seq int64, ahead time.Duration) signing.Sealed {
	t.Helper()
	m, err := signing.Unseal(envelope, seq)
	require.NoError(t, err)
	m.Header.Iat, m.Header.Exp = m.Header.Iat+ahead.Milliseconds(), m.Header.Exp+ahead.Milliseconds()
	sealed, err := s.Signing.Seal(m.Type, m.Header, m.Body)
	require.NoError(t, err)
	return sealed
}

// What was sealed while the clock was ahead is known by that when it is sent, and is sealed again:
// the same message under the same number, which the peer takes.
func TestWhatAClockThatWasAheadHasSealedIsSealedAgain(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	first := p.Hub.Due(t)[0]
	ahead := later(t, p.Hub, first, 1, 10*time.Minute)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET envelope = $1, digest = $2, exp = $3, created_at = created_at + interval '10 min'`, ahead.Envelope, ahead.Digest[:], ahead.Exp))
	_, err := p.Spoke.Verifier.Open(ahead.Envelope, time.Now())
	require.ErrorContains(t, err, string(signing.TimeFuture))
	p.Hub.Out.Restart()
	out, err := p.Hub.Out.Next(t.Context())
	require.NoError(t, err)
	require.True(t, out[0].Ahead)

	p.Hub.Out.Reseal(out)
	require.NoError(t, p.Hub.DB.SealAhead(t.Context(), p.Hub.Conn.ID, out[0].Seq, out[0].Seq))

	again, err := p.Hub.Out.Next(t.Context())
	require.NoError(t, err)
	require.False(t, again[0].Ahead)
	require.Contains(t, again[0].ID, ".again", "the message server has the old one under its id")
	m := p.Spoke.Read(t, again[0].Envelope)
	require.Equal(t, []any{ahead.ID, int64(1)}, []any{m[0].Header.ID, m[0].Header.Seq})
	require.LessOrEqual(t, m[0].Header.Exp, ahead.Exp.UnixMilli(), "it lives no longer")
	require.Len(t, take(t, p.Spoke, m), 1)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE digest = $1 AND exp = $2`, m[0].Digest[:], time.UnixMilli(m[0].Header.Exp)))
}

// A kill that its spoke may have taken before its time stays as the hub has sealed it: else the two have different orders under one
// number, and each takes the other for one that was restored. What is further ahead was taken by nobody.
func TestAKillThatMayBeTakenEarlyIsNotSealedAgain(t *testing.T) {
	t.Parallel()
	for ahead, stays := range map[time.Duration]bool{10 * time.Minute: true, commands.KillsAhead + time.Minute: true, commands.KillsAhead + 10*time.Minute: false} {
		p := storetest.NewPair(t)
		task := p.Order(t, nil)
		_, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: task, Reason: "the test says so", GraceMS: 100}, time.Hour, "ann")
		require.NoError(t, err)
		var digests [][]byte
		for i, envelope := range p.Hub.Due(t) {
			sealed := later(t, p.Hub, envelope, int64(i+1), ahead)
			digests = append(digests, sealed.Digest[:])
			require.NoError(t, p.Hub.Exec(`UPDATE outbox SET envelope = $1, digest = $2, exp = $3, created_at = created_at + $4::interval WHERE seq = $5`, sealed.Envelope, sealed.Digest[:], sealed.Exp, ahead, i+1))
		}
		require.Len(t, digests, 2)

		require.NoError(t, p.Hub.DB.SealAhead(t.Context(), p.Hub.Conn.ID, 1, 2))

		require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE digest = $1`, digests[0]), "the spawn")
		require.Equal(t, stays, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE digest = $1`, digests[1]) == 1, ahead)
		p.Hub.Out.Restart()
		out, err := p.Hub.Out.Next(t.Context())
		require.NoError(t, err)
		require.Len(t, out, 2)
		require.False(t, out[1].Ahead, "it goes out")
	}
}

// The key of a kill that is taken early is as new as the kill, which is signed: where the clock is behind, a key that was made since is
// too new as well. Nothing else is taken by it.
func TestAKillIsTakenEarlyByANewKey(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	task := p.Order(t, nil)
	for range 2 {
		_, err := p.Hub.DB.OrderKill(t.Context(), commands.Kill{Task: task, Reason: "the test says so", GraceMS: 100}, time.Hour, "ann")
		require.NoError(t, err)
	}
	due := p.Hub.Due(t)
	require.NoError(t, p.Spoke.Exec(`UPDATE keys SET not_before = now() + interval '1 minute'`))
	early := signing.Skew - 10*time.Second

	batch := p.Spoke.Read(t, later(t, p.Hub, due[0], 1, early).Envelope, later(t, p.Hub, due[1], 2, early).Envelope, due[2])
	take(t, p.Spoke, batch)

	require.Equal(t, []commands.Code{signing.KeyWindow, "", signing.KeyWindow}, []commands.Code{batch[0].Code, batch[1].Code, batch[2].Code})
}

// Of two seals under one number the one of the earlier time is the last: the clock was mended in
// between. It stays, in whatever order they come, and both histories are the same.
func TestTheSealOfAMendedClockStays(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"the new one last": {0, 1}, "the old one last": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			p.Order(t, nil)
			mended := p.Hub.Due(t)[0]
			seals := [][]byte{later(t, p.Hub, mended, 1, time.Minute).Envelope, mended}

			require.Len(t, take(t, p.Spoke, p.Spoke.Read(t, seals[order[0]])), 1)
			again := p.Spoke.Read(t, seals[order[1]])
			take(t, p.Spoke, again)

			require.Equal(t, signing.ReplaySame, again[0].Code)
			digest := p.Spoke.Read(t, mended)[0].Digest
			require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM inbox WHERE seq = 1 AND digest = $1`, digest[:]))
		})
	}
}

// Messages of another version of this program stay as they are, and are not taken for ones to seal again for ever.
func TestWhatAnotherVersionHasSealedAheadStays(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	require.NoError(t, p.Hub.Exec(`UPDATE outbox SET created_at = created_at + interval '10 min', envelope = convert_to(replace(convert_from(envelope, 'UTF8'), '.v2+json', '.v3+json'), 'UTF8')`))
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM outbox WHERE position('.v3+json' in convert_from(envelope, 'UTF8')) > 0`))

	require.NoError(t, p.Hub.DB.SealAhead(t.Context(), p.Hub.Conn.ID, 1, 1))

	p.Hub.Out.Restart()
	var out []store.Outgoing
	out, err := p.Hub.Out.Next(t.Context())
	require.NoError(t, err)
	require.False(t, out[0].Ahead)
}
