package store_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
)

// Pages of a list have each row once that was there at the first one, and none that came since.
func TestPagesOfAListThatGrows(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	var tasks []string
	for range 7 {
		tasks = append([]string{p.Order(t, nil)}, tasks...)
	}
	for _, open := range []bool{true, false} {
		var got []string
		for before, first := "", true; first || before != ""; first = false {
			list, next, err := p.Hub.DB.ListMirrors(t.Context(), store.MirrorTerms{Open: open, Spoke: "attic", Before: before, Limit: 2})
			require.NoError(t, err)
			for _, m := range list {
				got = append(got, m.Task)
			}
			p.Order(t, nil)
			before = next
		}
		require.Equal(t, tasks, got[len(got)-len(tasks):])
		require.Len(t, got, len(tasks)+map[bool]int{true: 0, false: 4}[open], "the second walk begins with what the first has added")
	}

	for what, object := range map[string]string{"of all": "", "of one thing": "x"} {
		s := storetest.NewSide(t, 1, 2)
		note := func(why string) {
			require.NoError(t, s.DB.Audit(t.Context(), store.AuditRow{Actor: "ann", Action: "test", Object: "x", Why: why}))
		}
		for n := range 7 {
			note(strconv.Itoa(n))
		}
		var got []string
		for before, full := int64(0), true; full; {
			rows, err := s.DB.AuditTrail(t.Context(), object, before, 2)
			require.NoError(t, err, what)
			for i := len(rows) - 1; i >= 0; i-- {
				if rows[i].Action == "test" {
					got = append(got, rows[i].Why)
				}
			}
			note("later")
			if full = len(rows) == 2; full {
				before = rows[0].Seq
			}
		}
		require.Equal(t, []string{"6", "5", "4", "3", "2", "1", "0"}, got, what)
	}
}

// The audit knows a task by its short id also where it has no other row, as that of a refused order, and of several that
// begin alike it names each. What is called so itself goes before.
func TestTheAuditKnowsShortIDs(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	const refused, ordered = "01a2199f-0000-7000-8000-000000000001", "01a2199f-0000-7000-8000-00000000000f"
	require.NoError(t, s.DB.Audit(t.Context(), store.AuditRow{Actor: "lab", Action: "command.refused", Object: refused, Why: "first"},
		store.AuditRow{Actor: "lab", Action: "command.refused", Object: refused, Why: "again"}, store.AuditRow{Actor: "ann", Action: "task.ordered", Object: ordered}))
	whys := func(object string) (whys []string) {
		rows, err := s.DB.AuditTrail(t.Context(), object, 0, 10)
		require.NoError(t, err)
		for _, r := range rows {
			whys = append(whys, r.Why)
		}
		return whys
	}

	require.Equal(t, []string{"first", "again"}, whys(commands.ShortID(refused)))
	require.Equal(t, []string{"first", "again"}, whys("0000000I"), "as a person may read it")
	require.Empty(t, whys("00000002"))
	_, err := s.DB.AuditTrail(t.Context(), "0000", 0, 10)
	require.Equal(t, commands.Ambiguous, commands.CodeOf(err))
	require.ErrorContains(t, err, ordered+", "+refused)
	require.NoError(t, s.DB.Audit(t.Context(), store.AuditRow{Actor: "ann", Action: "connection.active", Object: "0000", Why: "its name"}))
	require.Equal(t, []string{"its name"}, whys("0000"))
}
