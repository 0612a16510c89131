package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Lists of agents and of the audit are narrowed by state, time and number.
func TestListsAreNarrowed(t *testing.T) {
	t.Parallel()
	h := hand{t: t, dir: startMesh(t).Hub.Dir}
	good := strings.TrimSpace(h.do("spawn", "-o", "name", "--", "true"))
	bad := strings.TrimSpace(h.do("spawn", "-o", "name", "--", "false"))
	for _, id := range []string{good, bad} {
		require.Eventually(t, func() bool { return strings.Contains(h.do("status", id), "ended") }, time.Minute, 100*time.Millisecond)
	}
	list := func(args ...string) []string { return strings.Fields(h.do(append(args, "-o", "name")...)) }
	tomorrow := time.Now().Add(24 * time.Hour).Format(time.RFC3339)

	require.Equal(t, []string{bad}, list("agents", "--state", "failed"))
	require.Equal(t, []string{bad, good}, list("agents", "--state", "failed", "--state", "completed"))
	require.Equal(t, []string{bad}, list("agents", "--state", "failed,completed", "--limit", "1"))
	require.Empty(t, list("agents", "--state", "queued"))
	require.Equal(t, []string{bad, good}, list("agents", "--since", "1h"))
	require.Empty(t, list("agents", "--since", tomorrow))
	h.refused(exitMisuse, `or a word of the list: CPU limit, cancel not answered, connection ended, could not start`, "agents", "--state", "gone")
	killed := strings.TrimSpace(h.do("spawn", "-o", "name", "--", "sleep", "600"))
	h.do("kill", killed, "--grace", "0s", "--reason", "enough")
	h.ends(killed)
	for id, words := range map[string][]string{killed: {"killed", "cancelled"}, bad: {"failed: exit 1", "failed"}} {
		for _, word := range words { // the first is that of the table
			require.Equal(t, []string{id}, list("agents", "--state", word), word)
		}
		require.Regexp(t, `(?m)^\w{8} +attic +`+words[0]+" ", h.do("agents"))
	}
	require.Empty(t, list("agents", "--state", "refused"))
	h.refused(exitMisuse, `"soon" is neither a duration`, "agents", "--since", "soon")
	all := list("audit", "list")
	require.Equal(t, all[len(all)-2:], list("audit", "list", "--limit", "2"))
	require.Equal(t, all, list("audit", "list", "--since", "2020-01-01"))
	require.Empty(t, list("audit", "list", "--since", tomorrow))
	h.do("backlog", "create", "--title", "x", "--id", "A1")
	require.NotEmpty(t, list("backlog", "audit", "A1", "--since", "1h"))
	require.Empty(t, list("backlog", "audit", "--since", tomorrow))
	h.refused(exitMisuse, `"soon" is neither a duration`, "backlog", "audit", "--since", "soon")
	h.refused(exitMisuse, "--limit is 1 or more", "audit", "list", "--limit", "0")
}
