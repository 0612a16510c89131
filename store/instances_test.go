package store_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// Two instances have a database and a user each on one server. Both users may act
// as the roles that touch the tables, which belong to the whole server.
func TestInstancesOnOneServerCannotReachEachOther(t *testing.T) {
	t.Parallel()
	c := pgtest.Cluster(t)
	admin, err := pgx.Connect(t.Context(), pgtest.Admin(c.URL()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close(t.Context()) })
	address := func(user, database string) string {
		u, err := url.Parse(c.URL())
		require.NoError(t, err)
		u.User, u.Path = url.UserPassword(user, user), "/"+database
		return u.String()
	}
	for _, sql := range []string{`CREATE ROLE spawnmesh_engine NOLOGIN`, `CREATE ROLE spawnmesh_app NOLOGIN`, `CREATE ROLE ann LOGIN PASSWORD 'ann'`, `CREATE ROLE bob LOGIN PASSWORD 'bob'`,
		`GRANT spawnmesh_engine, spawnmesh_app TO ann, bob`, `CREATE DATABASE ann OWNER ann`, `CREATE DATABASE bob OWNER bob`} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			require.ErrorContains(t, err, "already exists")
		}
	}
	open := func(name string, seed byte) *store.DB {
		db, err := store.Open(t.Context(), store.Config{URL: address(name, name), Self: signing.InstanceIDOf(storetest.Signer(t, seed).Public()), Signer: storetest.Signer(t, seed), PoolSize: 2})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		return db
	}
	ann, bob := open("ann", 1), open("bob", 3)

	_, annToBob := pgx.Connect(t.Context(), address("ann", "bob"))
	_, bobToAnn := pgx.Connect(t.Context(), address("bob", "ann"))

	require.ErrorContains(t, annToBob, `permission denied for database "bob"`)
	require.ErrorContains(t, bobToAnn, `permission denied for database "ann"`)
	for _, db := range []*store.DB{ann, bob} {
		require.NoError(t, db.Audit(t.Context(), store.AuditRow{Actor: "x", Action: "y"}))
		_, err := db.Prune(t.Context(), 0, time.Minute)
		require.NoError(t, err, "pruning needs no administrator")
	}
}
