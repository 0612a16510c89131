package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// A database is a private server, with the settings of those of the mesh.
type database struct {
	lock    *postgres.InstanceLock
	cluster *postgres.Cluster
	pool    *pgxpool.Pool
}

// newDatabase makes one below dir, with a table.
func newDatabase(ctx context.Context, dir, table string) (d *database, err error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("making a directory for a database: %w", err)
	}
	d = &database{}
	if d.lock, err = postgres.Lock(dir); err != nil {
		return nil, err
	}
	if d.cluster, err = postgres.Start(ctx, postgres.Config{Dir: dir}); err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	if d.pool, err = pgxpool.New(ctx, d.cluster.URL()); err == nil {
		err = d.exec(ctx, table)
	}
	if err != nil {
		return nil, errors.Join(err, d.close(context.WithoutCancel(ctx)))
	}
	return d, nil
}

func (d *database) close(ctx context.Context) error {
	if d.pool != nil {
		d.pool.Close()
	}
	return errors.Join(d.cluster.Close(ctx), d.lock.Close())
}

func (d *database) exec(ctx context.Context, sql string, args ...any) error {
	if _, err := d.pool.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

func (d *database) ids(ctx context.Context, sql string, args ...any) ([]uuid.UUID, error) {
	rows, err := d.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sql, err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
}

const (
	hubTable   = `CREATE TABLE orders (id uuid PRIMARY KEY, state text NOT NULL DEFAULT 'queued', at timestamptz NOT NULL DEFAULT now(), body bytea NOT NULL) WITH (fillfactor = 70)`
	spokeTable = `CREATE TABLE tasks (id uuid PRIMARY KEY, state text NOT NULL DEFAULT 'queued', at timestamptz NOT NULL DEFAULT now(), body bytea NOT NULL) WITH (fillfactor = 70);
		CREATE INDEX ON tasks (id) WHERE state = 'queued'`
)

// sides makes the databases of both sides.
func sides(ctx context.Context, dir string) (hub, spoke *database, err error) {
	if hub, err = newDatabase(ctx, filepath.Join(dir, "hub"), hubTable); err != nil {
		return nil, nil, err
	}
	if spoke, err = newDatabase(ctx, filepath.Join(dir, "spoke"), spokeTable); err != nil {
		return nil, nil, errors.Join(err, hub.close(context.WithoutCancel(ctx)))
	}
	return hub, spoke, nil
}

// tempDir makes a directory that a database server may enter even when we are root.
func tempDir(name string) (string, error) {
	dir, err := os.MkdirTemp("", "spawnmesh-"+name+"-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}
