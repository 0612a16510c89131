package store_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

func audit(t *testing.T, s *storetest.Side, n int) {
	t.Helper()
	rows := make([]store.AuditRow, n)
	for i := range rows {
		rows[i] = store.AuditRow{Actor: "ann", Action: "test.row", Object: fmt.Sprint(i), Why: "because, 1:1"}
	}
	require.NoError(t, s.DB.Audit(t.Context(), rows...))
}

// checkpoint brings the tree up to date and signs it.
func checkpoint(t *testing.T, s *storetest.Side) store.Checkpoint {
	t.Helper()
	_, err := s.DB.GrowAuditTree(t.Context())
	require.NoError(t, err)
	c, err := s.DB.Checkpoint(t.Context(), s.Identity)
	require.NoError(t, err)
	return c
}

// verify holds the audit of s against checkpoints.
func verify(t *testing.T, s *storetest.Side, notes ...string) (audittree.Summary, error) {
	t.Helper()
	v, err := audittree.Verify(s.Identity.Public(), notes...)
	require.NoError(t, err)
	for from := int64(0); ; {
		list, _, err := s.DB.AuditLeaves(t.Context(), from, 7)
		require.NoError(t, err)
		for _, l := range list {
			if err := v.Add(l); err != nil {
				return v.Summary, err
			}
		}
		if len(list) == 0 {
			break
		}
		from = list[len(list)-1].Leaf + 1
	}
	strays, err := s.DB.AuditStrays(t.Context(), 10)
	require.NoError(t, err)
	return v.Summary, v.End(strays)
}

// tamper does what somebody can who owns the database: no trigger binds him.
func tamper(t *testing.T, s *storetest.Side, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `SET session_replication_role = replica; `+sql)
	require.NoError(t, err)
}

func TestTheTreeOfTheAuditHasEveryRow(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	audit(t, s, 2345)
	c := checkpoint(t, s)
	require.Equal(t, s.Count(t, `SELECT count(*) FROM audit`), int(c.Size))
	audit(t, s, 3)

	sum, err := verify(t, s, c.Note)
	require.NoError(t, err)
	require.Equal(t, c.Size, sum.Rows)
	_, err = s.DB.GrowAuditTree(t.Context())
	require.NoError(t, err)
	sum, err = verify(t, s, c.Note)
	require.NoError(t, err)
	require.Equal(t, int64(3), sum.Later)
	again := checkpoint(t, s)
	proof, err := s.DB.ProveAudit(t.Context(), c.Size, again.Size)
	require.NoError(t, err)
	require.True(t, again.Extends(c.Checkpoint, proof))
	require.False(t, again.Extends(c.Checkpoint, proof[1:]))
	_, err = verify(t, s, again.Note, c.Note)
	require.NoError(t, err, "an older checkpoint fits, too")
	require.Error(t, s.Exec(`UPDATE audit_leaves SET seq = 9`))
	require.Error(t, s.Exec(`DELETE FROM audit_hashes`))
}

// A row of a transaction that ends after others with higher numbers is no leaf before it is committed, and one afterwards.
func TestARowThatIsCommittedLaterIsALeaf(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	audit(t, s, 1)
	late, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer late.Close(t.Context())
	tx, err := late.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO audit (actor, action) VALUES ('slow', 'test.late')`)
	require.NoError(t, err)
	audit(t, s, 5)
	before := checkpoint(t, s)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit_gaps`))
	tamper(t, s, `UPDATE audit_gaps SET at = at - interval '20 min'`)
	audit(t, s, 1)
	checkpoint(t, s)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit_gaps`), "it still runs")
	require.NoError(t, tx.Commit(t.Context()))

	c := checkpoint(t, s)
	require.Equal(t, before.Size+2, c.Size)
	_, err = verify(t, s, c.Note, before.Note)
	require.NoError(t, err)
	tamper(t, s, `UPDATE audit_gaps SET at = at - interval '20 min'`)
	require.Eventually(t, func() bool { // transactions of other databases of the server count, too
		audit(t, s, 1)
		c = checkpoint(t, s)
		return s.Count(t, `SELECT count(*) FROM audit_gaps`) == 0
	}, time.Minute, 100*time.Millisecond)
	_, err = verify(t, s, c.Note)
	require.NoError(t, err)
}

// What was changed is named by the first row that does not fit.
func TestAnAuditThatWasChangedIsNotWhole(t *testing.T) {
	t.Parallel()
	cut := `DELETE FROM audit_leaves WHERE leaf >= 20; DELETE FROM audit_hashes WHERE place >= 39; UPDATE audit_tree SET size = 20, seq = (SELECT max(seq) FROM audit_leaves);`
	last := `(SELECT max(seq) - 10 FROM audit)`
	for name, c := range map[string]struct{ sql, says string }{
		"a row edited":          {`UPDATE audit SET why = 'nothing' WHERE seq = 7`, "row 7 (test.row by ann) is not what it was"},
		"its workspace edited":  {`UPDATE audit SET workspace = 'other' WHERE seq = 7`, "row 7 "},
		"a row moved in time":   {`UPDATE audit SET at = at + interval '1 microsecond' WHERE seq = 7`, "row 7 "},
		"a row deleted":         {`DELETE FROM audit WHERE seq = 7`, "rows are gone from row 7 to row 7"},
		"the last ten deleted":  {`DELETE FROM audit WHERE seq > ` + last, "rows are gone from row 21 to row 30"},
		"and their leaves":      {`DELETE FROM audit WHERE seq > 20; ` + cut, "10 rows are gone"},
		"a row put in":          {`INSERT INTO audit (seq, actor, action) OVERRIDING SYSTEM VALUE VALUES (-5, 'eve', 'test.row')`, "row -5 was put in"},
		"a leaf deleted":        {`DELETE FROM audit_leaves WHERE leaf = 4`, "leaf 4 is gone"},
		"a row and its leaf":    {`UPDATE audit SET why = 'nothing' WHERE seq = 7; UPDATE audit_hashes SET hash = (SELECT hash FROM audit_hashes WHERE place = 0) WHERE place = 10`, "row 7 "},
		"two rows change place": {`UPDATE audit_leaves SET seq = -7 WHERE seq = 7; UPDATE audit_leaves SET seq = 7 WHERE seq = 8; UPDATE audit_leaves SET seq = 8 WHERE seq = -7`, "row 8 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.NewSide(t, 1, 2)
			audit(t, s, 30)
			require.Equal(t, 30, s.Count(t, `SELECT count(*) FROM audit`))
			kept := checkpoint(t, s)
			_, err := verify(t, s, kept.Note)
			require.NoError(t, err)

			tamper(t, s, c.sql)

			_, err = verify(t, s, kept.Note)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// Rows that are no leaves are found wherever they are among many, the lowest numbers first.
func TestStraysAreFoundAmongMany(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	audit(t, s, 2500)
	checkpoint(t, s)
	tamper(t, s, `DELETE FROM audit_leaves WHERE seq IN (1000, 1001, 2000, 2500); INSERT INTO audit (seq, actor, action) OVERRIDING SYSTEM VALUE VALUES (-5, 'eve', 'test.row'), (-9223372036854775807, 'eve', 'test.row')`)
	strays := []int64{math.MinInt64 + 1, -5, 1000, 1001, 2000, 2500}
	for most := 1; most <= 7; most++ {
		list, err := s.DB.AuditStrays(t.Context(), most)
		require.NoError(t, err)
		require.Equal(t, strays[:min(most, 6)], list)
	}
	audit(t, s, 1)
	list, err := s.DB.AuditStrays(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, strays, list, "what the tree has not passed yet is none")
}

// Who rewrites rows, leaves and hashes, and removes the checkpoints, is seen by who has kept one. While the
// checkpoint is there, nothing is signed that does not go on from it.
func TestARewrittenTailIsSeenByWhoHasACheckpoint(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	audit(t, s, 30)
	kept := checkpoint(t, s)
	tamper(t, s, `UPDATE audit SET why = 'nothing' WHERE seq = 25; TRUNCATE audit_leaves, audit_hashes, audit_gaps; UPDATE audit_tree SET size = 0, seq = 0`)
	_, err := s.DB.GrowAuditTree(t.Context())
	require.NoError(t, err)

	_, err = s.DB.Checkpoint(t.Context(), s.Identity)
	require.Equal(t, commands.AuditBroken, commands.CodeOf(err))

	tamper(t, s, `DELETE FROM audit_checkpoints`)
	anew := checkpoint(t, s)
	_, err = verify(t, s, anew.Note)
	require.NoError(t, err, "it fits itself")
	_, err = verify(t, s, anew.Note, kept.Note)
	require.ErrorContains(t, err, "the first 30 rows, up to row 30, are not those of the checkpoint")
	proof, err := s.DB.ProveAudit(t.Context(), kept.Size, anew.Size)
	require.NoError(t, err)
	require.False(t, anew.Extends(kept.Checkpoint, proof))
}

// An instance keeps the newest thousand of its own checkpoints.
func TestOldCheckpointsGo(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	audit(t, s, 1)
	checkpoint(t, s)
	tamper(t, s, `INSERT INTO audit_checkpoints (era, size, note) SELECT -1, n, '' FROM generate_series(1, 1050) AS n`)
	audit(t, s, 1)

	c := checkpoint(t, s)

	require.Equal(t, 1000, s.Count(t, `SELECT count(*) FROM audit_checkpoints`))
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM audit_checkpoints WHERE era = $1 AND size = $2`, c.Era, c.Size))
	require.Equal(t, 53, s.Count(t, `SELECT min(size) FROM audit_checkpoints WHERE era = -1`))
}

// Two processes make leaves of the rows that others write, some of which are rolled back: each row is one leaf.
func TestTwoWhoGrowTheTree(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	other := storetest.OpenSide(t, s.URL, 1, 2, 4)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			for i := 0; ctx.Err() == nil; i++ {
				_ = s.DB.Tx(t.Context(), "auditing", func(ctx context.Context, tx *store.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO audit (actor, action) SELECT 'ann', 'test.row' FROM generate_series(1, $1)`, i%3+1)
					if i%5 == 0 {
						return commands.Refuse(commands.Conflict, "not this one")
					}
					return err
				})
			}
			return nil
		})
	}
	for _, db := range []*store.DB{s.DB, other.DB} {
		g.Go(func() error {
			for ctx.Err() == nil {
				if _, err := db.GrowAuditTree(t.Context()); err != nil {
					return err
				}
				if _, err := db.Checkpoint(t.Context(), s.Identity); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())

	c := checkpoint(t, s)
	require.Equal(t, s.Count(t, `SELECT count(*) FROM audit`), int(c.Size))
	_, err := verify(t, s, c.Note)
	require.NoError(t, err)
}

// Retention removes rows that are leaves, and nothing that is none; the rest is verified as before.
func TestWhatRetentionRemovedIsNoGap(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	audit(t, s, 20)
	kept := checkpoint(t, s)
	audit(t, s, 4)
	require.Zero(t, prune(t, s)["audit"])
	c := checkpoint(t, s)
	require.NoError(t, s.Exec(`SELECT prune_audit(interval '7 days', 100)`))

	old := storetest.NewSide(t, 1, 2)
	tamper(t, old, `INSERT INTO audit (actor, action, at) SELECT 'ann', 'test.row', now() - interval '300 days' FROM generate_series(1, 20); INSERT INTO audit (actor, action) VALUES ('ann', 'test.row')`)
	require.NoError(t, old.Exec(`SELECT prune_audit(interval '7 days', 100)`))
	require.Equal(t, 21, old.Count(t, `SELECT count(*) FROM audit`), "what is no leaf stays")
	require.Equal(t, int64(20), prune(t, old)["audit"], "it is one before it goes")
	later := checkpoint(t, old)
	sum, err := verify(t, old, later.Note)
	require.NoError(t, err)
	require.Equal(t, int64(20), sum.Pruned)
	require.Equal(t, int64(21), sum.From)
	tamper(t, old, `DELETE FROM audit WHERE seq = 21`)
	_, err = verify(t, old, later.Note)
	require.ErrorContains(t, err, "rows are gone from row 21 to row 21, and retention has removed none after row 20")
	_, err = verify(t, s, c.Note, kept.Note)
	require.NoError(t, err)
}

// A restored database says so in its checkpoints, and goes on.
func TestARestoredAuditBeginsAnEra(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	_, err := s.DB.BeginIncarnation(t.Context(), []string{""}, "one")
	require.NoError(t, err)
	audit(t, s, 5)
	before := checkpoint(t, s)
	require.Zero(t, before.Era)
	_, err = s.DB.BeginIncarnation(t.Context(), []string{"another"}, "two")
	require.NoError(t, err)

	c := checkpoint(t, s)
	require.Greater(t, c.Era, time.Now().Add(-time.Hour).UnixMicro())
	sum, err := verify(t, s, c.Note, before.Note)
	require.NoError(t, err)
	require.NotNil(t, sum.Restored)
}
