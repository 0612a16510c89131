package meshtest

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// What a list cannot be narrowed, begun or bounded by is refused with a code, and what is only strange finds nothing: no text of
// a caller is a part of a statement.
func TestParametersThatCannotBe(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	d := m.Hub.describe(t)
	m.Wait(t, m.Noop(t, "attic"))
	sums := m.Hub.Count(t, `SELECT count(*) FROM mirrors`)
	const sql = `'; DROP TABLE mirrors; --`
	lists := []string{"/tasks", "/audit", "/workspaces/main/tasks"}
	for name, value := range map[string]string{
		"limit=SQL": sql, "limit=-1": "-1", "limit=0": "0", "limit=10^9": "1000000000", "limit=1e3": "1e3", "limit=2^64": "18446744073709551616", "limit=": "",
		"cursor=SQL": sql, "cursor=-1": "-1", "cursor=forged": "AAAA", "cursor=NUL": "a\x00", "cursor=long": strings.Repeat("A", 8000), "sort=seq": "seq; " + sql,
	} {
		parameter, _, _ := strings.Cut(name, "=")
		for _, list := range lists {
			status, said := d.ask(t, "GET", api.Base+list+"?"+url.Values{parameter: {value}}.Encode(), "", "")

			var p api.Problem
			require.NoError(t, json.Unmarshal(said, &p), "%s %s: %s", list, name, said)
			require.Equal(t, 400, status, "%s %s: %s", list, name, said)
			require.Equal(t, string(commands.Validation), p.Code, "%s %s", list, name)
			require.Less(t, len(said), 12_000, "%s %s", list, name)
		}
	}
	for _, query := range []string{"/tasks?label=", "/tasks?spoke=", "/audit?object=", "/workspaces/main/tasks?phase="} {
		for _, value := range []string{sql, `" OR ""="`, `$1`, `%`, `_`, `\`, `{"a":1}`, strings.Repeat("x", 8000)} {
			status, said := d.ask(t, "GET", api.Base+query+url.QueryEscape(value), "", "")
			require.Contains(t, []int{200, 400, 404}, status, "%s%.100s: %s", query, value, said)
			require.NotContains(t, string(said), `"items":[{`, "%s%.100s", query, value)
		}
	}
	require.Equal(t, sums, m.Hub.Count(t, `SELECT count(*) FROM mirrors`))
	m.Wait(t, m.Noop(t, "attic"))
}
