package backlog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// All that keeps the work of a connection is said, each by its own word: who lifts one would learn of the next only then.
func TestAllThatKeepsTheWorkOfAConnectionIsSaid(t *testing.T) {
	t.Parallel()
	const suspended, expired, frozen, waits = `UPDATE connections SET state = 'suspended', state_by = 'ann' WHERE id = $1`, `UPDATE grants SET expires_at = now() WHERE conn = $1`,
		`INSERT INTO latches (conn, frozen, actor, reason, since) VALUES ($1, true, 'bob', 'incident', now())`, `INSERT INTO latches (conn, wait_until) VALUES ($1, now() + interval '1 hour')`
	for name, tt := range map[string]struct {
		made []string
		said []string
	}{
		"suspended":            {[]string{suspended}, []string{"the connection with NAME is suspended by ann"}},
		"expired":              {[]string{expired}, []string{"the grant of NAME has expired"}},
		"frozen":               {[]string{frozen}, []string{"NAME has frozen its agents: bob: incident"}},
		"expired and frozen":   {[]string{expired, frozen}, []string{"the grant of NAME has expired", "NAME has frozen its agents: bob: incident"}},
		"all of it":            {[]string{suspended, expired, frozen}, []string{"the connection with NAME is suspended by ann", "the grant of NAME has expired", "NAME has frozen its agents: bob: incident"}},
		"the link has come up": {[]string{waits}, []string{"the link with NAME has just come up: what it has sent meanwhile is taken first"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := newSide(t)
			s := scene{t, side, boardOf(t, side, backlog.MainWorkspace)}
			task := s.asked().Spawn.Task
			for _, sql := range tt.made {
				require.NoError(t, s.Exec(sql, s.Conn.ID))
			}

			w, err := s.b.Why(t.Context(), task)

			require.NoError(t, err)
			require.Equal(t, backlog.Held, w.Task.Eligibility)
			var said []string
			for _, r := range w.Reasons {
				if r.Code != commands.CauseCapability {
					said = append(said, strings.Replace(r.Text, s.Conn.Name, "NAME", 1))
				}
			}
			require.Equal(t, tt.said, said)
		})
	}
}
