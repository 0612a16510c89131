package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// GrantTerms are what the commanding side of a connection may ask for.
type GrantTerms struct {
	Kinds    []string   `json:"kinds"`             // of messages
	Runtimes []string   `json:"runtimes"`          // of agents
	Weight   int        `json:"weight"`            // its share of the claims, beside other connections'
	Expires  *time.Time `json:"expires,omitempty"` // nil = never
}

// FullGrant is the grant of a join: everything that this version knows to ask.
// What may run is narrowed by the spoke's own policy.
func FullGrant() GrantTerms {
	return GrantTerms{
		Kinds:    []string{string(commands.SpawnKind), string(commands.StatusKind), string(commands.KillKind), string(commands.AnswerKind), string(commands.PauseKind), string(commands.ReviewKind)},
		Runtimes: []string{commands.RuntimeExec, commands.RuntimeNoop},
		Weight:   1,
	}
}

// Check refuses terms that no grant can have.
func (g GrantTerms) Check() error {
	known := FullGrant()
	for _, k := range g.Kinds {
		if !slices.Contains(known.Kinds, k) {
			return commands.Refuse(commands.Validation, "no kind of order is called %q", k).Hinting("one or more of: %s", strings.Join(known.Kinds, ", "))
		}
	}
	for _, r := range g.Runtimes {
		if !slices.Contains(known.Runtimes, r) {
			return commands.Refuse(commands.Validation, "no runtime is called %q", r).Hinting("one or more of: %s", strings.Join(known.Runtimes, ", "))
		}
	}
	if g.Weight < 1 || g.Weight > 1000 {
		return commands.Refuse(commands.Validation, "weight %d is outside 1..1000", g.Weight)
	}
	if g.Expires != nil && (g.Expires.UTC().Year() < 1 || g.Expires.UTC().Year() > 9999) { // RFC 3339 has no other years
		return commands.Refuse(commands.Validation, "the grant would end in the year %d in UTC, which is outside 1..9999", g.Expires.UTC().Year()).Hinting("name a time within these years, or never")
	}
	return nil
}

const grantColumns = `kinds, runtimes, weight, CASE WHEN expires_at < 'infinity' THEN expires_at END`

// Grants returns the grants of all connections, by connection id.
func (db *DB) Grants(ctx context.Context) (map[string]GrantTerms, error) {
	grants := map[string]GrantTerms{}
	err := db.retry(ctx, func(ctx context.Context) error {
		clear(grants)
		rows, err := db.pool.Query(ctx, `SELECT conn::text, `+grantColumns+` FROM grants`)
		if err != nil {
			return err
		}
		var conn string
		var g GrantTerms
		_, err = pgx.ForEachRow(rows, []any{&conn, &g.Kinds, &g.Runtimes, &g.Weight, &g.Expires}, func() error {
			grants[conn] = g
			g = GrantTerms{}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the grants: %w", err)
	}
	return grants, nil
}

// SetGrant changes the grant of a connection that has not ended: change gets the
// terms that are there, and makes them the ones that are to be. It may run again
// after an outage. From the commit on no message is taken, and nothing is
// claimed, that the new terms forbid.
func (db *DB) SetGrant(ctx context.Context, conn, actor string, change func(*GrantTerms)) (g GrantTerms, err error) {
	err = db.Tx(ctx, "changing the grant of connection "+conn, func(ctx context.Context, tx *Tx) error {
		c, err := one(tx.Query(ctx, `SELECT `+connectionColumns+` FROM connections WHERE id = $1 FOR UPDATE`, conn))
		if err != nil {
			return err
		}
		if c.State.Ended() {
			return commands.Refuse(commands.Conflict, "connection %s is %s since %s: it has no grant any more", c.Name, c.State, c.Since.UTC().Format(time.RFC3339))
		}
		g = GrantTerms{}
		err = tx.QueryRow(ctx, `SELECT `+grantColumns+` FROM grants WHERE conn = $1`, conn).Scan(&g.Kinds, &g.Runtimes, &g.Weight, &g.Expires)
		if err != nil {
			return err
		}
		change(&g)
		if err := g.Check(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE grants SET kinds = $2, runtimes = $3, weight = $4, expires_at = coalesce($5::timestamptz, 'infinity') WHERE conn = $1`,
			conn, g.Kinds, g.Runtimes, g.Weight, g.Expires)
		tx.Audit(AuditRow{Actor: actor, Action: "connection.grant", Object: c.Name, Conn: conn, Why: g.String()})
		return err
	})
	return g, err
}

// String says what is granted in one line.
func (g GrantTerms) String() string {
	text := fmt.Sprintf("%s; runtimes %s; weight %d", strings.Join(g.Kinds, " "), strings.Join(g.Runtimes, " "), g.Weight)
	if g.Expires != nil {
		text += "; until " + g.Expires.Format(time.DateTime)
	}
	return text
}
