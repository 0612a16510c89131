package backlog

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// maxSession bounds the id of a runtime's session, in bytes.
const maxSession = 256

// A Checkpoint is what an agent keeps for its next attempt: data in a file of the spoke, and the id of a session.
type Checkpoint struct {
	Digest  string  // SHA-256 of the data, hex; "" = there is none, or it stays as it is
	Size    int64   // of the data
	Session *string // nil = it stays as it is
	Runs    bool    // as it is read: an attempt of its task has started, and its end is not recorded
}

// CheckSession refuses what is no id of a runtime's session.
func CheckSession(id string) error { return checkText("the id of the session", id, maxSession, true) }

// KeepCheckpoint notes what the agent of an attempt keeps. The file is there before.
func (b *Backlog) KeepCheckpoint(ctx context.Context, f Fence, c Checkpoint) (at time.Time, err error) {
	if c.Session != nil {
		if err := CheckSession(*c.Session); err != nil {
			return at, err
		}
	}
	var digest *string
	if c.Digest != "" {
		digest = &c.Digest
	}
	if digest == nil && c.Session == nil {
		return at, commands.Refuse(commands.Validation, "the checkpoint is neither data nor a session").Hinting("give one of them")
	}
	err = b.byFence(ctx, "keeping the checkpoint of an agent", f, func(ctx context.Context, tx *store.Tx) error {
		return tx.QueryRow(ctx, statement("keep_checkpoint"), f.Task, f.Attempt, f.Epoch, digest, c.Size, c.Session).Scan(&at)
	})
	return at, err
}

// LastCheckpoint returns what the agent of a task has kept last; the zero value for nothing.
func (b *Backlog) LastCheckpoint(ctx context.Context, task string) (c Checkpoint, err error) {
	err = b.db.Read(ctx, "looking for the checkpoint of an agent", func(ctx context.Context, conn *pgxpool.Conn) error {
		session := ""
		err := conn.QueryRow(ctx, statement("last_checkpoint"), task).Scan(&c.Digest, &c.Size, &session, &c.Runs)
		if err == pgx.ErrNoRows {
			return nil
		}
		c.Session = &session
		return err
	})
	return c, err
}

// SettledCheckpoint is the digest of the data that the agent of an attempt has kept last, once all that it was about to keep has
// happened or not.
func (b *Backlog) SettledCheckpoint(ctx context.Context, f Fence) (digest string, err error) {
	err = b.byFence(ctx, "looking for the checkpoint of an attempt", f, func(ctx context.Context, tx *store.Tx) error {
		var at time.Time
		if err := tx.QueryRow(ctx, statement("heard"), f.Task, f.Attempt, f.Epoch).Scan(&at); err != nil { // whoever keeps one holds the lease
			return err
		}
		return tx.QueryRow(ctx, `SELECT coalesce((SELECT digest FROM task_checkpoints WHERE task = $1), '')`, f.Task).Scan(&digest)
	})
	return digest, err
}

// WithCheckpoints says of which tasks the checkpoint is still wanted: those that go on, or ended less than keep ago.
// A name that is no id is none of a task.
func (b *Backlog) WithCheckpoints(ctx context.Context, names []string, keep time.Duration) (map[string]bool, error) {
	var ids []string
	for _, name := range names {
		if id, err := uuid.Parse(name); err == nil && strings.EqualFold(id.String(), name) {
			ids = append(ids, name)
		}
	}
	wanted := map[string]bool{}
	err := b.db.Read(ctx, "looking for tasks with checkpoints", func(ctx context.Context, conn *pgxpool.Conn) error {
		list, err := collect[string](conn.Query(ctx, statement("with_checkpoints"), ids, keep))
		for _, id := range list {
			wanted[id] = true
		}
		return err
	})
	return wanted, err
}
