package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// dump writes one state of the database to a file. The instance's role owns the tables and sees
// all rows, under the policies of the tables.
func dump(ctx context.Context, address, binDir string, major int, to string) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // pg_dump would let others read it
	if err != nil {
		return err
	}
	err = tool(ctx, binDir, "pg_dump", major, address, "--format=custom", "--enable-row-security", "--file="+to)
	return errors.Join(err, f.Sync(), f.Close())
}

// load puts a dump into an empty database, whole or not at all.
func load(ctx context.Context, address, binDir string, major int, from string) error {
	return tool(ctx, binDir, "pg_restore", major, address, "--single-transaction", "--exit-on-error", "--no-owner", from)
}

// look lists a dump.
func look(ctx context.Context, binDir string, major int, from string) error {
	return tool(ctx, binDir, "pg_restore", major, "", "--list", from)
}

// tool runs a program of PostgreSQL on a database. No password is among its arguments.
func tool(ctx context.Context, binDir, name string, major int, address string, args ...string) error {
	path, err := postgres.Tool(ctx, binDir, name, major)
	if err != nil {
		return err
	}
	env := os.Environ()
	if address != "" {
		plain, password, err := withoutPassword(address)
		if err != nil {
			return err
		}
		args = append([]string{"--dbname=" + plain}, args...)
		if password != "" {
			env = append(env, "PGPASSWORD="+password)
		}
	}
	var said bytes.Buffer
	c := exec.CommandContext(ctx, path, args...)
	c.Env, c.Stderr = env, &said
	err = c.Run()
	if ctx.Err() != nil { // it was killed for that
		return fmt.Errorf("%s: %w", name, ctx.Err())
	}
	if err != nil {
		return &commands.Refused{Code: commands.StoreDown, Why: name, Err: fmt.Errorf("%w%s", err, complaints(said.String())),
			Hint: "the program is " + path + "; SPAWNMESH_PG_BIN names another directory"}
	}
	return nil
}

// complaints are the errors that a tool printed. What it prints beside them may quote rows.
func complaints(said string) string {
	var b strings.Builder
	for line := range strings.Lines(said) {
		if _, why, ok := strings.Cut(line, ": error: "); ok && b.Len() < 1000 {
			b.WriteString(": " + strings.TrimSpace(why))
		}
	}
	return b.String()
}

// withoutPassword takes the password out of an address, and what is for our own client.
func withoutPassword(address string) (plain, password string, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", "", commands.Refuse(commands.Validation, "DATABASE_URL is no address that backups can use").Hinting("write it as in: postgres://USER@HOST:5432/NAME")
	}
	if u.User != nil {
		password, _ = u.User.Password()
		u.User = url.User(u.User.Username())
	}
	q := u.Query()
	if p := q.Get("password"); p != "" {
		password = p
	}
	q.Del("password")
	for name := range q {
		if strings.HasPrefix(name, "pool_") || strings.HasSuffix(name, "_cache_capacity") || name == "default_query_exec_mode" {
			q.Del(name)
		}
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // a plus sign is one
	return u.String(), password, nil
}
