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

	"github.com/spawnmesh/spawnmesh/store"
)

// The data directory lists the connections that have ended, an id a line: a
// database that is put back from a backup must not let somebody in again who was
// revoked since.

func (b *Board) endedFile() string { return filepath.Join(b.Dir, "ended") }

// endAgain revokes what the data directory says to have ended and the database
// does not. It comes before anybody is let in.
func (b *Board) endAgain(ctx context.Context) error {
	raw, err := os.ReadFile(b.endedFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading which connections have ended: %w", err)
	}
	b.final = map[string]bool{}
	for _, id := range strings.Fields(string(raw)) {
		b.final[id] = true
	}
	table, err := b.DB.Connections(ctx)
	if err != nil {
		return err
	}
	for _, c := range table {
		if !b.final[c.ID] || c.State.Ended() {
			continue
		}
		if _, err := b.DB.SetConnectionState(ctx, c.ID, store.Revoked, "it had ended before the database was restored from a backup", "self", b.end); err != nil {
			return err
		}
		b.Log.WarnContext(ctx, "the restored database has a connection that had ended; it is revoked again", "name", c.Name)
	}
	return nil
}

// keepEnded adds to the list what has ended since. After a crash before that, the
// next start does it: the table says so still.
func (b *Board) keepEnded(table []store.Served) error {
	grown := false
	for _, row := range table {
		if row.State.Ended() && !b.final[row.ID] {
			b.final[row.ID], grown = true, true
		}
	}
	if !grown {
		return nil
	}
	if err := mark(b.endedFile(), strings.Join(slices.Sorted(maps.Keys(b.final)), "\n")+"\n"); err != nil {
		return fmt.Errorf("listing the connections that have ended: %w", err)
	}
	return nil
}
