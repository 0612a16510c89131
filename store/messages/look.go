package messages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// Terms say which messages are looked for, by one of From, To, Type, Correlation and Words.
type Terms struct {
	From, To, Type, Correlation string
	Words                       string // in the payload, as people write them into a search
	Rising                      bool   // the oldest first
	Beyond                      int64  // numbers above it, or where they do not rise below it; 0 = all
	Limit                       int
}

// grepTime is how long a search may take.
const grepTime = 5 * time.Second

// list is the statement for terms, with its third parameter but for words.
func (t Terms) list() (sql, by string, err error) {
	n, column := 0, ""
	for _, f := range []struct{ column, value string }{{"sender", t.From}, {"recipient", t.To}, {"type", t.Type}, {"correlation", t.Correlation}, {"words", t.Words}} {
		if f.value != "" {
			n, column, by = n+1, f.column, f.value
		}
	}
	if n > 1 {
		return "", "", commands.Refuse(commands.Validation, "a list is by one of from, to, type, correlation id and words").Hinting("give one of them, and look for the rest in what it lists")
	}
	where := "m.workspace = $1"
	switch column {
	case "":
	case "words": // see search
	case "correlation":
		where += " AND m.correlation = $4 AND m.correlation <> ''"
	default:
		where += " AND m." + column + " = $4"
	}
	order := "m.seq < $2 ORDER BY m.seq DESC"
	if t.Rising {
		order = "m.seq > $2 ORDER BY m.seq"
	}
	return `SELECT ` + columns + `, false FROM messages m WHERE ` + where + ` AND ` + order + ` LIMIT $3`, by, nil
}

// List returns messages, the newest first where nothing else is said.
func (l *Log) List(ctx context.Context, workspace string, t Terms) (list []Message, err error) {
	sql, by, err := t.list()
	if err != nil {
		return nil, err
	}
	beyond := t.Beyond
	if beyond == 0 && !t.Rising {
		beyond = 1<<63 - 1
	}
	args := []any{workspace, beyond, t.Limit}
	if by != "" {
		args = append(args, by)
	}
	if t.Words != "" {
		return l.search(ctx, t, args)
	}
	err = l.db.ReadIn(ctx, "listing messages", workspace, func(ctx context.Context, tx *store.Tx) error {
		list, err = read(tx.Query(ctx, sql, args...))
		return err
	})
	return list, err
}

// nearBy is how many messages are looked through without the index of words, which does not know the newest.
const nearBy = 2000

const (
	hasWords = `to_tsvector('simple', m.payload) @@ websearch_to_tsquery('simple', $4)`
	near     = `SELECT ` + columns + `, false FROM (SELECT * FROM messages WHERE workspace = $1 AND seq %[1]s $2 ORDER BY seq %[2]s LIMIT %[3]d) AS m WHERE ` + hasWords + ` ORDER BY m.seq %[2]s LIMIT $3`
	byWords  = `WITH m AS MATERIALIZED (SELECT * FROM messages m WHERE numnode(websearch_to_tsquery('simple', $4)) > 0
			AND message_words(m.workspace, m.payload) @@ (quote_literal(' ' || $1::text)::tsquery && websearch_to_tsquery('simple', $4))) SELECT ` + columns + `, false FROM m WHERE m.workspace = $1 AND m.seq %[1]s $2 ORDER BY m.seq %[2]s LIMIT $3`
)

// search looks for words in what is next, and then by their index, which has the workspace, too. It can be used only
// where the database does not ask for the workspace by itself first, and in no order.
func (l *Log) search(ctx context.Context, t Terms, args []any) (list []Message, err error) {
	way := []any{"<", "DESC", nearBy}
	if t.Rising {
		way = []any{">", "ASC", nearBy}
	}
	soon, done := context.WithTimeout(ctx, grepTime)
	defer done()
	err = l.db.ReadIn(soon, "looking for words in messages", "", func(ctx context.Context, tx *store.Tx) error {
		if list, err = read(tx.Query(ctx, fmt.Sprintf(near, way...), args...)); err != nil || len(list) == t.Limit {
			return err
		}
		for _, set := range []string{`SET LOCAL enable_bitmapscan = on`, `SET LOCAL enable_indexscan = off`} {
			if _, err := tx.Exec(ctx, set); err != nil {
				return err
			}
		}
		list, err = read(tx.Query(ctx, fmt.Sprintf(byWords, way[:2]...), args...))
		return err
	})
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		return nil, commands.Refuse(commands.Validation, "the words are in too many messages to find the newest of them in %s", commands.Lasting(grepTime)).Hinting("name words that are in fewer")
	}
	return list, err
}

// Show returns one message of a workspace.
func (l *Log) Show(ctx context.Context, workspace, id string) (m Message, err error) {
	missing := commands.Refuse(commands.NotFound, "no message %q here", commands.Clip(id)).Hinting("see").Running("message", "list")
	if _, err := uuid.Parse(id); err != nil {
		return m, missing
	}
	err = l.db.ReadIn(ctx, "reading a message", workspace, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Query(ctx, `SELECT `+columns+`, false FROM messages m WHERE m.workspace = $1 AND m.id = $2`, workspace, id)
		if err == nil {
			m, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Message])
		}
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return m, missing
	}
	return m, err
}

// PrunedTo is the number up to which retention has removed messages of a workspace.
func (l *Log) PrunedTo(ctx context.Context, workspace string) (seq int64, err error) {
	err = l.db.ReadIn(ctx, "asking what was removed", workspace, func(ctx context.Context, tx *store.Tx) error {
		return tx.QueryRow(ctx, `SELECT coalesce((SELECT pruned FROM message_workspaces WHERE workspace = $1), 0)`, workspace).Scan(&seq)
	})
	return seq, err
}

// Readers are all of a workspace, by name.
func (l *Log) Readers(ctx context.Context, workspace string) (list []Reader, err error) {
	err = l.db.ReadIn(ctx, "listing readers", workspace, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Query(ctx, `SELECT name, acked, delivered, head, tries, head_at, seen, dropped_at, (SELECT count(*) FROM message_dead d WHERE d.workspace = r.workspace AND d.reader = r.name), since, due_at
			FROM message_readers r WHERE workspace = $1 ORDER BY name`, workspace)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Reader])
		}
		return err
	})
	return list, err
}

// DropReader forgets a reader, with its dead letters: nothing is kept for it. When it polls again it begins anew.
func (l *Log) DropReader(ctx context.Context, workspace, reader, actor string) error {
	return l.db.TxIn(ctx, "dropping a reader", workspace, func(ctx context.Context, tx *store.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM message_readers WHERE workspace = $1 AND name = $2`, workspace, reader)
		if err == nil && tag.RowsAffected() == 0 {
			err = noReader(reader)
		}
		if err != nil {
			return err
		}
		tx.Audit(store.AuditRow{Actor: actor, Action: "message.reader_dropped", Object: reader})
		_, err = tx.Exec(ctx, `DELETE FROM message_dead WHERE workspace = $1 AND reader = $2`, workspace, reader)
		return err
	})
}

// A DeadLetter is a message that a reader could not use.
type DeadLetter struct {
	Message
	Reader string
	Tries  int
	Why    string
	Died   time.Time
	Retry  bool // it is to be delivered once more
}

// Dead are the dead letters of a reader, or for "" of all, the oldest first.
func (l *Log) Dead(ctx context.Context, workspace, reader string, limit int) (list []DeadLetter, err error) {
	err = l.db.ReadIn(ctx, "listing dead letters", workspace, func(ctx context.Context, tx *store.Tx) error {
		where := `d.workspace = $1`
		args := []any{workspace, limit}
		if reader != "" {
			where, args = where+` AND d.reader = $3`, append(args, reader)
		}
		rows, err := tx.Query(ctx, `SELECT `+columns+`, false, d.reader, d.tries, d.why, d.at, d.again FROM message_dead d JOIN messages m ON m.seq = d.seq WHERE `+where+` ORDER BY d.workspace, d.reader, d.seq LIMIT $2`, args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DeadLetter, err error) {
			m := &d.Message
			return d, row.Scan(&m.Seq, &m.Workspace, &m.ID, &m.At, &m.From, &m.To, &m.Type, &m.Correlation, &m.InReplyTo, &m.Payload, &m.Blob, &m.By, &m.Size, &m.Again, &d.Reader, &d.Tries, &d.Why, &d.Died, &d.Retry)
		})
		return err
	})
	return list, err
}

// RetryDead has a dead letter delivered to its reader once more, before all else.
func (l *Log) RetryDead(ctx context.Context, workspace, reader string, seq int64, actor string) (Reader, error) {
	r, err := l.changeDead(ctx, workspace, reader, seq, store.AuditRow{Actor: actor, Action: "message.retried", Object: fmt.Sprintf("%s/%d", reader, seq)},
		`UPDATE message_dead SET again = true, given_at = NULL WHERE workspace = $1 AND reader = $2 AND seq = $3`)
	if err == nil {
		l.notify(ctx, written(map[address]bool{{workspace, reader}: true}))
	}
	return r, err
}

// DropDead forgets a dead letter.
func (l *Log) DropDead(ctx context.Context, workspace, reader string, seq int64, actor string) error {
	_, err := l.changeDead(ctx, workspace, reader, seq, store.AuditRow{Actor: actor, Action: "message.dropped", Object: fmt.Sprintf("%s/%d", reader, seq)},
		`DELETE FROM message_dead WHERE workspace = $1 AND reader = $2 AND seq = $3`)
	return err
}

func (l *Log) changeDead(ctx context.Context, workspace, reader string, seq int64, row store.AuditRow, sql string) (r Reader, err error) {
	err = l.db.TxIn(ctx, "changing a dead letter", workspace, func(ctx context.Context, tx *store.Tx) error {
		if r, _, err = l.hold(ctx, tx, workspace, reader, false); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sql, workspace, reader, seq)
		if err == nil && tag.RowsAffected() == 0 {
			err = commands.Refuse(commands.NotFound, "message %d is no dead letter of %s", seq, reader).Hinting("see").Running("message", "dead", "list")
		}
		if err != nil {
			return err
		}
		tx.Audit(row)
		return tx.QueryRow(ctx, `SELECT count(*) FROM message_dead WHERE workspace = $1 AND reader = $2`, workspace, reader).Scan(&r.Dead)
	})
	return r, err
}
