package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A Candidate is a spoke that an order may go to, and what its last heartbeat
// says of its load.
type Candidate struct {
	Conn  string
	Slots int           // agents at a time
	Busy  int           // agents that run or wait there
	Age   time.Duration // of that heartbeat
	Last  bool          // it gets the order only when there is no other: it has refused it, or starts nothing now
}

// countMost bounds what is counted per spoke: beyond it all are equally busy.
const countMost = 1000

// A placement spreads the orders of one transaction over spokes. It counts what
// this hub has ordered and no heartbeat counts yet from the database, so a
// restart and another process of this hub place alike.
type placement struct {
	name map[string]string // of the active ones, by connection
	more map[string]int    // orders that no heartbeat counts yet
	shut *commands.Refused // why a candidate that is frozen gets nothing; nil = none is
}

// newPlacement looks at all candidates once. It holds their connections until
// the transaction ends.
func newPlacement(ctx context.Context, tx *Tx, list []Candidate) (placement, error) {
	p := placement{name: map[string]string{}, more: map[string]int{}}
	age := map[string]time.Duration{}
	for _, c := range list {
		age[c.Conn] = c.Age
	}
	conns, ages := slices.Sorted(maps.Keys(age)), []time.Duration{}
	for _, conn := range conns {
		ages = append(ages, age[conn])
	}
	rows, err := tx.Query(ctx, `
		SELECT c.id::text, c.peer_name, coalesce(f.actor, ''), coalesce(f.reason, ''),
			(SELECT count(*) FROM (SELECT FROM mirrors m WHERE m.conn = c.id AND m.ended_at IS NULL AND m.accepted_at IS NULL LIMIT $3) AS unanswered)
			+ (SELECT count(*) FROM (SELECT FROM mirrors m WHERE m.conn = c.id AND m.ended_at IS NULL AND m.accepted_at > now() - u.age LIMIT $3) AS uncounted)
		FROM unnest($1::uuid[], $2::interval[]) AS u (conn, age) JOIN connections c ON c.id = u.conn `+withFreeze+`
		WHERE c.state = 'active' ORDER BY c.id FOR SHARE OF c`, conns, ages, countMost)
	if err != nil {
		return p, fmt.Errorf("counting what spokes have to do: %w", err)
	}
	var c target
	var n int
	c.State = Active
	_, err = pgx.ForEachRow(rows, []any{&c.ID, &c.Name, &c.frozenBy, &c.why, &n}, func() error {
		if r := c.closed(); r != nil {
			p.shut = r
			return nil
		}
		p.name[c.ID], p.more[c.ID] = c.Name, n
		return nil
	})
	if err != nil {
		return p, fmt.Errorf("counting what spokes have to do: %w", err)
	}
	return p, nil
}

// pick gives one more order to the least loaded of list, to those that come last
// when there is no other, and not to those that refused it. It returns "" when none
// is left.
func (p placement) pick(list []Candidate, refused map[string]bool) string {
	best, least, last := "", 0.0, false
	for _, c := range list {
		if _, active := p.name[c.Conn]; !active || refused[c.Conn] {
			continue
		}
		load := float64(c.Busy+p.more[c.Conn]) / float64(max(c.Slots, 1))
		if best == "" || last && !c.Last || last == c.Last && load < least {
			best, least, last = c.Conn, load, c.Last
		}
	}
	if best != "" {
		p.more[best]++
	}
	return best
}

// place chooses a spoke for each order that names none and is new.
func place(ctx context.Context, tx *Tx, orders []SpawnOrder, out []Ordered) error {
	var among []Candidate
	for i, o := range orders {
		if o.Anywhere && !out[i].Existing {
			among = append(among, o.Among...)
		}
	}
	p := placement{}
	if len(among) > 0 {
		var err error
		if p, err = newPlacement(ctx, tx, among); err != nil {
			return err
		}
	}
	for i := range orders {
		o := &orders[i]
		if !o.Anywhere || out[i].Existing || out[i].Err != nil {
			continue
		}
		if o.Conn = p.pick(o.Among, nil); o.Conn == "" {
			if out[i].Err = cmp.Or(p.shut, o.Nowhere); out[i].Err == nil {
				out[i].Err = commands.Refuse(commands.NoSpoke, "no spoke can run this now: their connections have just changed").Hinting("try again")
			}
			continue
		}
		out[i].Conn, out[i].Spoke = o.Conn, p.name[o.Conn]
	}
	return nil
}

// RunningCounts says how many agents run on each spoke, by connection, as far as their reports say.
func (db *DB) RunningCounts(ctx context.Context) (map[string]int, error) {
	rows, err := db.pool.Query(ctx, `SELECT conn::text, count(*) FROM mirrors WHERE ended_at IS NULL AND accepted_at IS NOT NULL AND state = 'running' GROUP BY conn`)
	if err != nil {
		return nil, fmt.Errorf("counting the agents that run: %w", err)
	}
	counts, conn, n := map[string]int{}, "", 0
	_, err = pgx.ForEachRow(rows, []any{&conn, &n}, func() error { counts[conn] = n; return nil })
	return counts, err
}
