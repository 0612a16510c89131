package federation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/store"
)

// The data directory lists the connections that have ended, an id a line: a
// database that is put back from a backup must not let somebody in again who was
// revoked since.

func (b *Board) endedFile() string { return filepath.Join(b.Dir, "ended") }

// readEnded reads the list at the start.
func (b *Board) readEnded() error {
	raw, err := os.ReadFile(b.endedFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading which connections have ended: %w", err)
	}
	b.final = map[string]bool{}
	for _, id := range strings.Fields(string(raw)) {
		b.final[id] = true
	}
	return nil
}

// serve reads the table. Before anybody is let in, it revokes what has ended as the
// data directory says, and not as the database does, once there is a role to end its
// work. A connection that it cannot revoke is in failed, and is not to be let in.
func (b *Board) serve(ctx context.Context, failed map[string]error) ([]store.Served, error) {
	table, err := b.DB.Serve(ctx, b.Process)
	if err != nil {
		return nil, err
	}
	again := false
	for _, row := range table {
		if !b.final[row.ID] || row.State.Ended() || b.roleFor(row.Authority) == nil {
			continue
		}
		c, err := b.DB.SetConnectionState(ctx, row.ID, store.Revoked, "it had ended before the database was restored from a backup", "self", b.end)
		if err != nil {
			failed[row.ID] = err
			continue
		}
		b.Log.WarnContext(ctx, "the restored database has a connection that had ended; it is revoked again", "connection", c.Name)
		b.ended(ctx, c)
		again = true
	}
	if again {
		return b.DB.Serve(ctx, b.Process)
	}
	return table, nil
}

// keepEnded adds to the list what has ended since. It comes after the cut, which a
// full disk must not hold up. After a crash before it, the next start does it: the
// table says so still.
func (b *Board) keepEnded(table []store.Served) error {
	list := maps.Clone(b.final)
	for _, row := range table {
		if row.State.Ended() {
			list[row.ID] = true
		}
	}
	if len(list) == len(b.final) {
		return nil
	}
	if err := fsync.Replace(b.endedFile(), []byte(strings.Join(slices.Sorted(maps.Keys(list)), "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("listing the connections that have ended: %w", err)
	}
	b.final = list
	return nil
}
