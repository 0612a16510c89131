package api

import (
	"cmp"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/roles.golden anew")

// operations are those of the document, by method and path.
func operations(t *testing.T) []string {
	t.Helper()
	text, err := Document()
	require.NoError(t, err)
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(text, &doc))
	var list []string
	for path, methods := range doc.Paths {
		for method := range methods {
			if method != "parameters" && method != "servers" {
				list = append(list, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(list)
	return list
}

func patternOf(operation string) string {
	method, path, _ := strings.Cut(operation, " ")
	if slices.Contains([]string{"/healthz", "/readyz", "/metrics"}, path) {
		return operation
	}
	return method + " " + Base + path
}

// An operation of the document that no line of the table names would be refused to everybody; a line without an
// operation would wait for one that nobody has thought about.
func TestEveryOperationHasItsRoles(t *testing.T) {
	t.Parallel()
	require.Equal(t, operations(t), slices.Sorted(maps.Keys(may)))
}

// An operation asks for the key at the control socket and for a token elsewhere; nothing, where anybody may ask.
func TestTheDocumentSaysWhatIsShown(t *testing.T) {
	t.Parallel()
	text, err := Document()
	require.NoError(t, err)
	type shown []map[string][]string
	var doc struct {
		Security shown `json:"security"`
		Paths    map[string]map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal(text, &doc))
	for operation, roles := range may {
		method, path, _ := strings.Cut(operation, " ")
		var of struct {
			Security shown `json:"security"`
		}
		require.NoError(t, json.Unmarshal(doc.Paths[path][strings.ToLower(method)], &of))
		if of.Security == nil {
			of.Security = doc.Security
		}
		want := shown{{"control_key": {}}, {"token": {}}}
		if slices.Contains(roles, nobody) {
			want[1] = map[string][]string{}
		}
		require.Equal(t, want, of.Security, operation)
	}
}

// Who may ask what is decided line by line: who changes the table reads it in the diff of the golden file, which -update
// writes.
func TestWhoMayAskWhat(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, operation := range operations(t) {
		got.WriteString(operation)
		for _, role := range append([]Role{nobody}, Roles...) {
			if (Access{role, Everywhere}).Denies(patternOf(operation), "") == Granted {
				got.WriteString(" " + cmp.Or(string(role), "anybody"))
			}
		}
		got.WriteString("\n")
	}
	const golden = "testdata/roles.golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)

	require.Equal(t, string(want), got.String())
}

// What each role is for, said once more than in the table.
func TestRolesAreWhatTheirNamesSay(t *testing.T) {
	t.Parallel()
	changes := map[Role][]string{
		Viewer:          nil,
		Operator:        {"/blobs", "/tasks", "/tasks/kill", "/tasks/{task}/kill", "/tasks/{task}/cancel", "/tasks/{task}/pause", "/tasks/{task}/resume", "/tasks/{task}/retry", "/tasks/{task}/review", "/tasks/archive", "/tasks/{task}/archive", "/tasks/{task}/unarchive", "/tasks/{task}/labels", "/tasks/{task}/ask", "/questions/{question}/answer", "/schedules", "/schedules/{schedule}", "/schedules/{schedule}/run"},
		Worker:          nil,
		FederationAdmin: {"/connections/{connection}/suspend", "/connections/{connection}/resume", "/connections/{connection}/revoke", "/connections/{connection}/resync", "/invites", "/invites/{invite}/revoke"},
	}
	for _, operation := range operations(t) {
		pattern := patternOf(operation)
		method, path, _ := strings.Cut(operation, " ")
		open := path == "/healthz" || path == "/readyz"
		for role, may := range changes {
			a := Access{role, Everywhere}
			switch {
			case open || path == "/openapi.json":
				require.Equal(t, Granted, a.Denies(pattern, path), "%s: %s", role, operation)
			case role == Worker && !strings.HasPrefix(path, inWorkspace):
				require.Equal(t, NotForRole, a.Denies(pattern, path), operation)
			case method != "GET" && !strings.HasPrefix(path, inWorkspace):
				require.Equal(t, slices.Contains(may, path), a.Denies(pattern, path) == Granted, "%s: %s", role, operation)
			}
		}
		require.Equal(t, Granted, Access{Owner, Everywhere}.Denies(pattern, path), operation)
		require.Equal(t, open, Access{}.Denies(pattern, path) == Granted, "without a token: %s", operation)
	}
	for role, says := range map[Role]Denial{Viewer: NotForRole, FederationAdmin: NotForRole, Operator: Granted} { // what agents write repeats what they were given
		require.Equal(t, says, Access{role, Everywhere}.Denies("GET "+Base+"/tasks/{task}/logs", ""), role)
	}
}

// What the table does not name is for nobody, and who has not said who it is learns of no path whether it is there.
func TestWhatIsNotNamedIsRefused(t *testing.T) {
	t.Parallel()
	for _, role := range Roles {
		require.Equal(t, NotForRole, Access{role, Everywhere}.Denies("GET "+Base+"/new", ""), role)
		require.Equal(t, Granted, Access{role, Everywhere}.Denies("", ""), "that there is no such path")
	}
	require.Equal(t, NotForRole, Access{"admin", Everywhere}.Denies("GET "+Base+"/tasks", ""))
	require.Equal(t, Anonymous, Access{}.Denies("", ""))
	require.Error(t, CheckRole("admin"))
	require.NoError(t, CheckRole(FederationAdmin))
}

// The workspace is the one in the path, however that is written.
func TestAnAccessIsOfItsWorkspace(t *testing.T) {
	t.Parallel()
	lab, all := Access{Owner, "lab"}, Access{Owner, Everywhere}
	tasks := "GET " + inWorkspace + "/tasks"
	for path, want := range map[string]Denial{
		"/workspaces/lab/tasks": Granted, "/workspaces/lab": Granted, "/workspaces/main/tasks": OutOfSight, "/workspaces/*/tasks": OutOfSight, "/workspaces/%6cab/tasks": OutOfSight,
		"/workspaces/lab%2fmain/tasks": OutOfSight, "/workspaces/LAB/tasks": OutOfSight, "/workspaces//tasks": OutOfSight, "/workspaces/labs/tasks": OutOfSight,
	} {
		require.Equal(t, want, lab.deniesWorkspace(tasks, Base+path), path)
	}
	require.Equal(t, NotForWorkspace, lab.deniesWorkspace("GET /workspaces/{workspace}s", Base+"/workspaces/lab"))
	require.Equal(t, NotForWorkspace, lab.Denies("GET "+Base+"/tasks", Base+"/tasks"))
	require.Equal(t, NotForWorkspace, lab.Denies("GET /metrics", "/metrics"))
	require.Equal(t, Granted, lab.Denies("GET "+Base+"/openapi.json", ""))
	require.Equal(t, Granted, all.Denies("GET "+Base+"/tasks", Base+"/tasks"))
}
