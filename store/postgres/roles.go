package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
)

// The roles of a private server that are not the schema's.
const (
	superuser   = "mesh"             // owns the server. It has no password, so nobody can log in as it: see offline
	programRole = "spawnmesh"        // owns the database, and nothing else
	backupRole  = "spawnmesh_backup" // may copy the cluster, and do nothing else
	database    = "mesh"
)

// rolesSQL makes the roles and gives the database and what is in it to the program's, however much of that is done already.
//
//go:embed roles.sql
var rolesSQL string

// settle makes database and roles in the cluster at data, where no server runs, and keeps the passwords. After a crash
// in between it is done again.
func (c *Cluster) settle(ctx context.Context, data string) error {
	p, err := c.readPasswords()
	if err != nil {
		return err
	}
	sql := rolesSQL
	for role, password := range p {
		v, err := verifier(password)
		if err != nil {
			return err
		}
		sql = strings.ReplaceAll(sql, "'{"+role+"}'", "'"+v+"'")
	}
	// It is there already in a cluster of an earlier version. If it is not there after all, the next step says so.
	if err := c.offline(ctx, data, "postgres", "off", "CREATE DATABASE "+database); err != nil {
		return err
	}
	if err := c.offline(ctx, data, database, "on", sql); err != nil {
		return err
	}
	return p.write(c.layout)
}

// offline runs statements as the superuser, without a server and without a login: whoever may start the program on the
// cluster's files may do that, so no password of the superuser has to be kept.
func (c *Cluster) offline(ctx context.Context, data, database, exitOnError string, statements ...string) error {
	args := []string{"--single", "-j", "-D", data, "-c", "exit_on_error=" + exitOnError}
	// What is printed goes into errors. No file of the operator has verifiers printed.
	for _, quiet := range []string{"log_statement=none", "log_min_duration_statement=-1", "log_duration=off", "log_min_error_statement=panic",
		"log_destination=stderr", "logging_collector=off"} {
		args = append(args, "-c", quiet)
	}
	cmd := c.account.command(data, c.programs.postgres(), append(args, database)...)
	cmd.Stdin = strings.NewReader(strings.Join(statements, ";\n\n") + ";\n\n") // -j: two line ends end a statement
	if err := run(ctx, cmd); err != nil {
		return fmt.Errorf("making the roles of the database: %w", err)
	}
	return nil
}

// Upkeep runs statements as the superuser of the private server of cfg.Dir, one after the other until one fails, in the
// database that [Cluster.URL] names. The server does not run meanwhile: the caller holds the lock of the directory, as for [Start].
func Upkeep(ctx context.Context, cfg Config, statements ...string) error {
	c, err := open(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.removeShortRun()
	if err := c.clearStale(ctx); err != nil {
		return err
	}
	return c.offline(ctx, c.data, database, "on", statements...)
}

// changeOver makes the roles of a cluster that has no passwords here: an earlier version made it, or they were lost.
func (c *Cluster) changeOver(ctx context.Context) error {
	exists, err := c.checkPasswordFile()
	if exists || err != nil {
		return err
	}
	if err := errors.Join(c.clearStale(ctx), c.settle(ctx, c.data)); err != nil {
		return err
	}
	c.log.InfoContext(ctx, "the database has new passwords", "file", c.passwordFile())
	return nil
}
