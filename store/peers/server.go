package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// serverSettings are the same for every contender. Durability is full with both.
var serverSettings = map[string]map[string]string{
	// Buffers and log are what Postgres itself has as defaults, since the peers are not
	// made for a small server.
	"usual": {"shared_buffers": "128MB", "max_wal_size": "1GB", "max_connections": "60"},
	// What this project's private server has: small, as several share a machine.
	"shipped": {},
}

// shown are the settings that are reported.
var shown = []string{
	"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_compression", "shared_buffers",
	"max_wal_size", "checkpoint_timeout", "work_mem", "max_connections", "autovacuum_naptime", "jit",
}

// A server is the private Postgres that all contenders share.
type server struct {
	dir     string
	lock    *postgres.InstanceLock
	cluster *postgres.Cluster
}

// startServer makes a cluster in a fresh directory, with settings of that name.
func startServer(ctx context.Context, settings string) (*server, error) {
	set, ok := serverSettings[settings]
	if !ok {
		return nil, fmt.Errorf("no settings of the server are called %q: there are usual and shipped", settings)
	}
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	// The server may run as another user, who has to pass through.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if s.lock, err = postgres.Lock(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	cfg := postgres.Config{Dir: dir, Settings: set}
	// Contenders make extensions and their own roles, and a round begins with a checkpoint.
	if err = postgres.Upkeep(ctx, cfg, "ALTER ROLE spawnmesh SUPERUSER"); err == nil {
		s.cluster, err = postgres.Start(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, s.lock.Close(), os.RemoveAll(dir))
	}
	return s, nil
}

// close stops the server and removes its data.
func (s *server) close(ctx context.Context) error {
	if err := s.cluster.Close(ctx); err != nil {
		return err // it may still use the directory
	}
	return errors.Join(s.lock.Close(), os.RemoveAll(s.dir))
}

// url returns the address of a database.
func (s *server) url(database string) (string, error) {
	u, err := url.Parse(s.cluster.URL())
	if err != nil {
		return "", fmt.Errorf("reading the server's address: %w", err)
	}
	u.Path = "/" + database
	return u.String(), nil
}

// exec runs statements in a database, each in a transaction of its own.
func (s *server) exec(ctx context.Context, database string, statements ...string) error {
	address, err := s.url(database)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return fmt.Errorf("connecting to the database %s: %w", database, err)
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// fresh makes an empty database, in place of the one an earlier round left.
func (s *server) fresh(ctx context.Context, database string) error {
	return s.exec(ctx, "mesh", "DROP DATABASE IF EXISTS "+database+" WITH (FORCE)", "CREATE DATABASE "+database)
}

// settle leaves nothing to be done later of what happened until now.
func (s *server) settle(ctx context.Context, database string) error {
	return s.exec(ctx, database, "VACUUM ANALYZE", "CHECKPOINT")
}

// settings returns what the server says of itself.
func (s *server) settings(ctx context.Context) (map[string]string, error) {
	conn, err := pgx.Connect(ctx, s.cluster.URL())
	if err != nil {
		return nil, fmt.Errorf("connecting to the server: %w", err)
	}
	defer conn.Close(ctx)
	found := map[string]string{}
	for _, name := range shown {
		var value string
		if err := conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return nil, fmt.Errorf("asking the server for %s: %w", name, err)
		}
		found[name] = value
	}
	return found, nil
}
