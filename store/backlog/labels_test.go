package backlog_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/store"
)

// labelledMirrors are 20,000 of which one in ten has no labels, and almost half have app=web.
const labelledMirrors = `INSERT INTO mirrors (task, conn, state, command, command_digest, request_digest, created_by, spec, expires_at, ended_at, labels)
	SELECT x.id, c.id, CASE WHEN open THEN task_state 'running' ELSE 'completed' END, x.id, '', '', 'bench', '{}', now(), CASE WHEN NOT open THEN now() END,
		CASE WHEN n % 10 > 0 THEN jsonb_build_object('app', CASE WHEN n % 1000 = 1 THEN 'rare' WHEN n % 2 = 1 THEN 'web' ELSE 'db' END, 'n', (n % 7)::text) || CASE WHEN n % 3 = 0 THEN jsonb '{"canary": ""}' ELSE '{}' END END
	FROM (SELECT n, n <= 5 OR n > 19990 AS open, claim_of(nth(n)) AS id FROM generate_series(1, 20000) AS n) AS x JOIN connections c ON c.peer_name = CASE WHEN n % 50 = 1 THEN 'shed' ELSE 'attic' END`

// A list by labels finds all that a selector asks for, page by page, and looks at no more for a page than it
// may, however rare or frequent that is.
func TestAListByLabelsIsBounded(t *testing.T) {
	t.Parallel()
	l := newLarge(t, pgtest.URL(t), 1_000, 100, nothing)
	require.NoError(t, l.Exec(`DELETE FROM mirrors`))
	require.NoError(t, l.Exec(labelledMirrors))
	for _, known := range []string{"without statistics", "with statistics"} {
		if known == "with statistics" {
			require.NoError(t, l.Exec(`ANALYZE`))
		}
		all := l.pages(t, store.MirrorTerms{})
		require.Len(t, all, 20_000)
		for text, fits := range scale.SomeCases(t, 4, map[string]func(commands.Labels) bool{
			"app=web":                               func(m commands.Labels) bool { return m["app"] == "web" },
			"app=rare":                              func(m commands.Labels) bool { return m["app"] == "rare" },
			"app=web,n=3,n":                         func(m commands.Labels) bool { return m["app"] == "web" && m["n"] == "3" },
			"app=none":                              func(commands.Labels) bool { return false },
			"app=web,n!=3":                          func(m commands.Labels) bool { return m["app"] == "web" && m["n"] != "3" },
			"app=web,n!=0,n!=1,n!=2,n!=3,n!=4,n!=5": func(m commands.Labels) bool { return m["app"] == "web" && m["n"] == "6" }, // too few among the newest, too many by the index
			"app=db,canary=":                        func(m commands.Labels) bool { _, canary := m["canary"]; return m["app"] == "db" && canary },
			"!app":                                  func(m commands.Labels) bool { return m == nil },
			"app":                                   func(m commands.Labels) bool { return m != nil },
			"app!=web,app!=db":                      func(m commands.Labels) bool { return m["app"] != "web" && m["app"] != "db" },
			"canary!=":                              func(m commands.Labels) bool { _, canary := m["canary"]; return !canary },
			"none":                                  func(commands.Labels) bool { return false },
			"!canary,app!=rare,n!=1":                func(m commands.Labels) bool { _, c := m["canary"]; return !c && m["app"] != "rare" && m["n"] != "1" },
		}) {
			s, err := commands.ParseSelector(text)
			require.NoError(t, err)
			for _, terms := range []store.MirrorTerms{{}, {Open: true}, {Spoke: "shed"}, {Spoke: "attic", Open: true}} {
				terms.Labels = s
				var want []string
				for _, m := range all {
					if fits(m.Labels) && (!terms.Open || !m.State.Terminal()) && (terms.Spoke == "" || m.Spoke == terms.Spoke) {
						want = append(want, m.Task)
					}
				}

				var got []string
				for _, m := range l.pages(t, terms) {
					got = append(got, m.Task)
				}

				require.True(t, slices.Equal(want, got), "%s: %s %+v: %d, not %d", known, text, terms, len(got), len(want))
			}
		}
	}
}

// pages are all mirrors that fit, as a list of pages has them; none of its statements reads more than it may.
func (l *large) pages(t *testing.T, terms store.MirrorTerms) (all []store.Mirror) {
	t.Helper()
	terms.Limit = 1000
	for first := true; first || terms.Before != ""; first = false {
		asked := l.watch.during(t, func(ctx context.Context) error {
			list, next, err := l.DB.ListMirrors(ctx, terms)
			all, terms.Before = append(all, list...), next
			return err
		})
		for _, s := range asked {
			if first && !terms.Labels.Empty() {
				require.LessOrEqual(t, explain(t, l.watch.config, s).Reads("mirrors"), 5000.0, "%+v: %s", terms, s.sql)
			}
		}
	}
	return all
}
