package store_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// Sessions do not depend on how a named server is set up.
func TestWhatASessionSets(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	var jit, plans, seqscan string

	require.NoError(t, s.DB.Read(t.Context(), "reading settings", func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT current_setting('jit'), current_setting('plan_cache_mode'), current_setting('enable_seqscan')`).Scan(&jit, &plans, &seqscan)
	}))

	require.Equal(t, "off force_generic_plan off", jit+" "+plans+" "+seqscan)
}

// A session that is used now and then does not keep for ever the plans of all that it has
// run, and one that nobody uses ends.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)

	pool := store.PoolForTest(s.DB)

	require.LessOrEqual(t, pool.MaxConnLifetime+pool.MaxConnLifetimeJitter, 11*time.Minute)
	require.LessOrEqual(t, pool.MaxConnIdleTime+pool.HealthCheckPeriod, time.Minute)
}

// The envelopes of a batch are written into a buffer that was made once.
func TestAListOfBytesIsEncodedWithoutGrowing(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	list := make([][]byte, 200)
	for i := range list {
		list[i] = bytes.Repeat([]byte{byte(i)}, 1000)
	}
	var encoded []byte
	var back [][]byte

	require.NoError(t, s.DB.Read(t.Context(), "sending a list", func(ctx context.Context, conn *pgxpool.Conn) (err error) {
		if encoded, err = conn.Conn().TypeMap().Encode(pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, list, nil); err != nil {
			return err
		}
		return conn.QueryRow(ctx, `SELECT $1::bytea[]`, list).Scan(&back)
	}))

	require.Equal(t, cap(slices.Grow([]byte(nil), len(encoded))), cap(encoded))
	require.Equal(t, list, back)
}

// Ids that are text travel as bytes, in the order of the list. What is no id is the server's to refuse.
func TestListsOfIDsAreText(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	ids := []string{"019000a0-0000-7000-8000-000000000001", "FFFFFFFF-ffff-7fff-8fff-ffffffffffff", "00000000-0000-0000-0000-000000000000"}
	ask := func(ids []string) (text string, err error) {
		err = s.DB.Read(t.Context(), "asking for ids", func(ctx context.Context, conn *pgxpool.Conn) error {
			return conn.QueryRow(ctx, `SELECT array_to_string($1::uuid[], ' ')`, ids).Scan(&text)
		})
		return text, err
	}

	text, err := ask(ids)
	require.NoError(t, err)
	require.Equal(t, strings.ToLower(strings.Join(ids, " ")), text)

	_, err = ask([]string{ids[0], "none"})
	pg, _ := errors.AsType[*pgconn.PgError](err)
	require.NotNil(t, pg, err)
	require.Equal(t, "22P02", pg.Code)
}
