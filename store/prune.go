package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// pruneBatch is how many rows one transaction of pruning removes at most.
const pruneBatch = 5000

// Prune removes rows that are older than they are kept, in bounded batches, the
// kinds in turns, until nothing is left to remove or the time within is over. It
// does nothing when somebody pruned within the last period. It returns how many
// rows went, by kind.
func (db *DB) Prune(ctx context.Context, period, within time.Duration) (map[string]int64, error) {
	removed := map[string]int64{}
	mine, err := db.pruneTurn(ctx, period)
	if err != nil || !mine {
		return removed, err
	}
	if _, err := db.GrowAuditTree(ctx); err != nil && commands.CodeOf(err) != commands.AuditBroken {
		return removed, err // a row that is no leaf stays, also where nothing serves the instance
	}
	left := slices.DeleteFunc(slices.Clone(Kinds), func(k Kind) bool { return k.prune == "" })
	for until := time.Now().Add(within); len(left) > 0; {
		var more []Kind
		for _, k := range left {
			n, err := db.pruneOnce(ctx, k)
			if err != nil {
				return removed, err
			}
			removed[k.Name] += n
			if n > 0 {
				more = append(more, k)
			}
		}
		if left = more; time.Now().After(until) {
			break
		}
	}
	return removed, db.notePruned(ctx, removed, left)
}

// PruneAgain is how long to wait after a round: where it found nothing that is old, little
// will be soon.
func PruneAgain(removed map[string]int64, err error) time.Duration {
	for _, n := range removed {
		if n > 0 {
			return time.Minute
		}
	}
	if err != nil {
		return time.Minute
	}
	return 10 * time.Minute
}

// pruneTurn reports whether nobody has pruned within the last period, and notes
// that we do. A turn in the future was taken by a clock that was ahead.
func (db *DB) pruneTurn(ctx context.Context, period time.Duration) (mine bool, err error) {
	err = db.Tx(ctx, "taking the turn to prune", func(ctx context.Context, tx *Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO retention AS r (kind, pruned_at) VALUES ('', clock_timestamp())
			ON CONFLICT (kind) DO UPDATE SET pruned_at = clock_timestamp()
				WHERE r.pruned_at NOT BETWEEN clock_timestamp() - $1::interval AND clock_timestamp()`, period)
		mine = tag.RowsAffected() > 0
		return err
	})
	return mine, err
}

func (db *DB) pruneOnce(ctx context.Context, k Kind) (n int64, err error) {
	if k.note != "" {
		err = db.Tx(ctx, "noting the age of "+k.Name, func(ctx context.Context, tx *Tx) error {
			keep, err := k.keep(ctx, tx)
			if err == nil {
				_, err = tx.Exec(ctx, k.note, keep)
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	err = db.Tx(ctx, "pruning "+k.Name, func(ctx context.Context, tx *Tx) error {
		keep, err := k.keep(ctx, tx)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, k.prune, keep, pruneBatch).Scan(&n)
	})
	return n, err
}

// keep is how long rows of the kind are kept.
func (k Kind) keep(ctx context.Context, tx *Tx) (time.Duration, error) {
	keep := k.Default
	err := tx.QueryRow(ctx, `SELECT keep FROM retention WHERE kind = $1 AND keep IS NOT NULL`, k.Name).Scan(&keep)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return max(keep, k.Least), err
}

// notePruned notes what was removed, what is left to remove, and once a day how
// much there is of each kind.
func (db *DB) notePruned(ctx context.Context, removed map[string]int64, left []Kind) error {
	return db.Tx(ctx, "noting what was pruned", func(ctx context.Context, tx *Tx) error {
		var b pgx.Batch
		for _, k := range Kinds {
			behind := slices.ContainsFunc(left, func(l Kind) bool { return l.Name == k.Name })
			b.Queue(`INSERT INTO retention AS r (kind, pruned_at, removed, behind, bytes, bytes_at) VALUES ($1, CASE WHEN $5 THEN clock_timestamp() END, $2, $3, kept_bytes($1, $4), clock_timestamp())
				ON CONFLICT (kind) DO UPDATE SET pruned_at = excluded.pruned_at, removed = excluded.removed, behind = excluded.behind,
					bytes = CASE WHEN r.bytes_at BETWEEN clock_timestamp() - interval '1 day' AND clock_timestamp() THEN r.bytes ELSE excluded.bytes END,
					bytes_at = CASE WHEN r.bytes_at BETWEEN clock_timestamp() - interval '1 day' AND clock_timestamp() THEN r.bytes_at ELSE excluded.bytes_at END`,
				k.Name, removed[k.Name], behind, k.tables, k.prune != "")
		}
		return tx.SendBatch(ctx, &b).Close()
	})
}

// A Kept says how a kind of rows is kept.
type Kept struct {
	Kind     string        `json:"kind"`
	Since    string        `json:"age_since"`
	Keep     time.Duration `json:"keep_ns"`
	Default  time.Duration `json:"default_ns"`
	AtOnce   bool          `json:"at_once,omitempty"` // it is not kept, and no age can be set
	SetBy    string        `json:"set_by,omitempty"`  // the flags that say how much is kept: no age can be set
	PartOf   string        `json:"part_of,omitempty"` // the kind whose rows these are parts of
	Bounds   string        `json:"bounds,omitempty"`  // what they say besides the age, as the hub noted that ran last
	Bytes    int64         `json:"bytes"`             // of the tables with their indexes, or of the files
	Grown    int64         `json:"grown_bytes"`       // since BytesAt
	BytesAt  *time.Time    `json:"grown_since,omitempty"`
	PrunedAt *time.Time    `json:"pruned_at,omitempty"` // nil: never yet
	Removed  int64         `json:"removed"`             // rows, that time
	Behind   bool          `json:"behind"`              // more rows were to go than time allowed
}

// Retention returns how long each kind is kept, and how large it is.
func (db *DB) Retention(ctx context.Context) ([]Kept, error) {
	list := make([]Kept, len(Kinds))
	err := db.retry(ctx, func(ctx context.Context) error {
		for i, k := range Kinds {
			list[i] = Kept{Kind: k.Name, Since: k.Since, Default: k.Default, AtOnce: k.AtOnce, SetBy: k.SetBy, PartOf: k.PartOf}
			err := db.pool.QueryRow(ctx, `SELECT coalesce(r.keep, $2), s.bytes, s.bytes - coalesce(r.bytes, s.bytes), r.bytes_at, r.pruned_at, coalesce(r.removed, 0), coalesce(r.behind, false), coalesce(r.bounds, '')
				FROM (SELECT kept_bytes($1, $3) AS bytes) AS s LEFT JOIN retention r ON r.kind = $1`, k.Name, k.Default, k.tables).
				Scan(&list[i].Keep, &list[i].Bytes, &list[i].Grown, &list[i].BytesAt, &list[i].PrunedAt, &list[i].Removed, &list[i].Behind, &list[i].Bounds)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading how long rows are kept: %w", err)
	}
	return list, nil
}

// SetRetention says how long rows of a kind are kept from now on; 0 is the
// default. Less than the kind allows is refused, and any time for what goes at once.
func (db *DB) SetRetention(ctx context.Context, kind string, keep time.Duration, actor string) error {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == kind })
	if i < 0 {
		return commands.Refuse(commands.NotFound, "nothing is called %q that is kept for a while", kind).Hinting("what there is").Running("retention")
	}
	switch k := Kinds[i]; {
	case k.SetBy != "":
		return commands.Refuse(commands.Validation, "how much is kept of %s is set by %s", kind, k.SetBy)
	case keep != 0 && k.AtOnce:
		return commands.Refuse(commands.Validation, "rows of kind %s go at once and are kept for no time; see when", kind).Running("retention")
	case keep != 0 && keep < k.Least:
		return commands.Refuse(commands.Validation, "rows of kind %s are kept for %s at least", kind, commands.Lasting(k.Least))
	}
	return db.Tx(ctx, "setting how long rows are kept", func(ctx context.Context, tx *Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO retention (kind, keep) VALUES ($1, nullif($2::interval, interval '0')) ON CONFLICT (kind) DO UPDATE SET keep = excluded.keep`, kind, keep)
		if err != nil {
			return fmt.Errorf("storing it: %w", err)
		}
		why := "default"
		if keep != 0 {
			why = keep.String()
		}
		tx.Audit(AuditRow{Actor: actor, Action: "retention.set", Object: kind, Why: why})
		return nil
	})
}

// NoteLogBounds notes what bounds the output of agents, for who looks at
// [DB.Retention]: its age, and in words what else does.
func (db *DB) NoteLogBounds(ctx context.Context, age time.Duration, bounds string) error {
	return db.Tx(ctx, "noting how much output is kept", func(ctx context.Context, tx *Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO retention (kind, keep, bounds) VALUES ('logs', $1, $2)
			ON CONFLICT (kind) DO UPDATE SET keep = excluded.keep, bounds = excluded.bounds`, age, bounds)
		return err
	})
}
