package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/spawnmesh/spawnmesh/commands"
)

// Each migration notes the digest of its text, in its own transaction: a database that another text of the same number has
// made is found at the start, and not by a statement that fails later.

// noteDigest is what a migration ends with.
const noteDigest = `
CREATE TABLE IF NOT EXISTS migration_digests (version bigint PRIMARY KEY, sha256 text NOT NULL);
GRANT SELECT ON migration_digests TO PUBLIC;
INSERT INTO migration_digests (version, sha256) VALUES (%d, '%s');
`

// digestsOf are those of all files, by number.
func digestsOf(files fs.FS) (map[int64]string, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	all := map[int64]string{}
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		all[version] = hex.EncodeToString(sum[:])
	}
	return all, nil
}

// sameTexts refuses a database that other texts than files have made.
func sameTexts(ctx context.Context, db *sql.DB, files fs.FS) error {
	known, err := digestsOf(files)
	if err != nil {
		return err
	}
	var made, noted bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL, to_regclass('migration_digests') IS NOT NULL`).Scan(&made, &noted); err != nil || !made {
		return err
	}
	digest := `''`
	if noted {
		digest = `coalesce((SELECT sha256 FROM migration_digests d WHERE d.version = g.version_id), '')`
	}
	rows, err := db.QueryContext(ctx, `SELECT DISTINCT version_id, `+digest+` FROM goose_db_version g WHERE version_id > 0 ORDER BY version_id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var version int64
		var sum string
		if err := rows.Scan(&version, &sum); err != nil {
			return err
		}
		if want, ours := known[version]; ours && sum != want {
			return commands.Refuse(commands.Conflict, "the database was made by another text of migration %05d than this program has (sha256 %s, not %s)", version, shortSum(sum), shortSum(want)).
				Hinting("run the version of spawnmesh that made the database; one that was made by a development version is made anew: keep what it has with spawnmesh backup, and start with an empty database. Nothing was changed")
		}
	}
	return rows.Err()
}

func shortSum(sum string) string {
	if sum == "" {
		return "not noted"
	}
	return sum[:min(12, len(sum))]
}

// noting are files that note the digest of each text at its end.
type noting struct{ fs.FS }

// Open implements [fs.FS].
func (n noting) Open(name string) (fs.File, error) {
	f, err := n.FS.Open(name)
	version, numbered := goose.NumericComponent(name)
	if err != nil || numbered != nil {
		return f, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	text, err := fs.ReadFile(n.FS, name)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	text = fmt.Appendf(text, noteDigest, version, hex.EncodeToString(sum[:]))
	return &noted{bytes.NewReader(text), info}, nil
}

// noted is a file in memory.
type noted struct {
	*bytes.Reader
	info fs.FileInfo
}

// Stat implements [fs.File]. Its size is that of the text alone.
func (n *noted) Stat() (fs.FileInfo, error) { return n.info, nil }

// Close implements [fs.File].
func (n *noted) Close() error { return nil }
