package meshtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
)

// sign brings the tree of i up to date, and returns its newest checkpoint.
func (i *Instance) sign(t *testing.T) (c api.AuditCheckpoint) {
	t.Helper()
	i.Do(t, "GET", api.Base+"/audit/checkpoint", nil, &c)
	return c
}

// keeps waits until i keeps a checkpoint of its peer of that size, or evidence, and returns what it keeps.
func (i *Instance) keeps(t *testing.T, what string, ok func(api.PeerCheckpoint) bool) (list []api.PeerCheckpoint) {
	t.Helper()
	Await(t, what, func() bool {
		var all api.PeerCheckpointList
		i.Do(t, "GET", api.Base+"/audit/checkpoints", nil, &all)
		list = all.Items
		return len(list) > 0 && ok(list[0])
	})
	return list
}

func of(c api.AuditCheckpoint) func(api.PeerCheckpoint) bool {
	return func(p api.PeerCheckpoint) bool { return p.Checkpoint.Note == c.Note }
}

func refused(p api.PeerCheckpoint) bool { return p.Refused != "" }

// tamper does what somebody can who owns the database.
func (i *Instance) tamper(t *testing.T, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(i.url))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `SET session_replication_role = replica; `+sql)
	require.NoError(t, err)
}

// Rows that are no leaves are looked for among all rows, which takes its time: where it is asked for.
func TestRowsThatWerePutInAreLookedForWhereAsked(t *testing.T) {
	t.Parallel()
	hub := Start(t, "attic").Hub.Instance
	hub.sign(t)
	hub.tamper(t, `INSERT INTO audit (seq, actor, action) OVERRIDING SYSTEM VALUE VALUES (-1, 'mallory', 'nothing')`)
	var unasked, asked api.AuditLeafList

	hub.Do(t, "GET", api.Base+"/audit/leaves?limit=10000", nil, &unasked)
	hub.Do(t, "GET", api.Base+"/audit/leaves?limit=10000&strays=true", nil, &asked)

	require.Empty(t, unasked.Strays)
	require.Equal(t, []int64{-1}, asked.Strays)
}

// Hub and spoke keep the newest checkpoint of each other, over restarts, also while the audits grow.
func TestPeersKeepCheckpoints(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	hub, attic := m.Hub.Instance, m.Spokes["attic"].Instance
	for range 2 {
		for range 3 {
			m.Wait(t, m.Noop(t, "attic"))
			list := attic.keeps(t, "the hub's", of(hub.sign(t)))
			require.Len(t, list, 1)
			require.Equal(t, "lab", list[0].Peer)
			hub.keeps(t, "the spoke's", of(attic.sign(t)))
		}
		m.Stop(t, "attic")
		m.Stop(t, "hub")
		m.Start(t, "hub")
		m.Start(t, "attic")
		m.AwaitLink(t, "attic")
	}
}

// A tail that is written anew, with leaves, hashes and checkpoints, fits itself. The peer sees it, and so it does an
// audit that has lost rows.
func TestAPeerSeesARewrittenAudit(t *testing.T) {
	t.Parallel()
	wipe := `TRUNCATE audit_leaves, audit_hashes, audit_gaps, audit_checkpoints; UPDATE audit_tree SET size = 0, seq = 0;`
	for name, sql := range map[string]string{
		"rewritten": `UPDATE audit SET why = 'nothing' WHERE seq = (SELECT max(seq) FROM audit);` + wipe,
		"cut":       `DELETE FROM audit WHERE seq > (SELECT max(seq) - 3 FROM audit);` + wipe,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Start(t, "attic")
			hub, attic := m.Hub.Instance, m.Spokes["attic"].Instance
			m.Wait(t, m.Noop(t, "attic"))
			was := hub.sign(t)
			attic.keeps(t, "the hub's", of(was))
			m.Stop(t, "hub")
			hub.tamper(t, sql)
			m.Start(t, "hub")
			m.AwaitLink(t, "attic")
			if name == "rewritten" {
				m.Wait(t, m.Noop(t, "attic"))
			}
			hub.sign(t)

			list := attic.keeps(t, "evidence", refused)
			require.Len(t, list, 1)
			require.Equal(t, was.Note, list[0].Checkpoint.Note, "what was kept stays")
			require.Contains(t, list[0].Why, "the audit of the peer has ")
			Await(t, "that the log says so, after the commit", func() bool { return strings.Contains(attic.Log.String(), "the audit of the peer is not what it was") })
			require.Equal(t, 1, attic.Count(t, `SELECT count(*) FROM audit WHERE action = 'peer.audit_refused'`))
			var in api.Instance
			attic.Do(t, "GET", api.Base+"/instance", nil, &in)
			require.Contains(t, fmt.Sprint(in.Health), "audit of lab")
			hub.learnsThatItsAuditIsRefused(t, m)
		})
	}
}

// learnsThatItsAuditIsRefused waits until attic has told its hub, which says so where somebody looks.
func (i *Instance) learnsThatItsAuditIsRefused(t *testing.T, m *Mesh) {
	t.Helper()
	Await(t, "that the hub knows", func() bool {
		says := m.View(t, "attic").Says.Audit
		return says != nil && strings.Contains(says.Refused, "the audit of the peer has ")
	})
	told := m.View(t, "attic").LastSeen
	Await(t, "another heartbeat", func() bool { return m.View(t, "attic").LastSeen.After(*told) })
	require.Equal(t, 1, strings.Count(i.Log.String(), "the peer refuses the audit of this instance"))
	var in api.Instance
	i.Do(t, "GET", api.Base+"/instance", nil, &in)
	require.Contains(t, fmt.Sprint(in.Health), "attic refuses the audit of this instance")
}

// A database that is put back without its data directory, as a restore does it, says so: the peer keeps both, and goes on
// from the new one.
func TestARestoredAuditBeginsAnewAtThePeer(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	hub, attic := m.Hub.Instance, m.Spokes["attic"].Instance
	m.Wait(t, m.Noop(t, "attic"))
	m.Stop(t, "hub")
	backup := hub.Backup(t)
	m.Start(t, "hub")
	m.AwaitLink(t, "attic")
	m.Wait(t, m.Noop(t, "attic"))
	was := hub.sign(t)
	attic.keeps(t, "the hub's", of(was))
	m.Stop(t, "hub")
	hub.Restore(t, backup)
	m.Start(t, "hub")
	agreeAgain(t, m, "attic")

	is := hub.sign(t)
	require.NotNil(t, is.RestoredAt)
	list := attic.keeps(t, "the hub's of now", of(is))
	require.Len(t, list, 2)
	require.Equal(t, was.Note, list[1].Checkpoint.Note)
	require.Empty(t, list[0].Refused+list[1].Refused)
	require.Equal(t, 1, attic.Count(t, `SELECT count(*) FROM audit WHERE action = 'peer.audit_restored' AND code = 'RESYNC'`))
	m.Wait(t, m.Noop(t, "attic"))
	attic.keeps(t, "the hub's of later", of(hub.sign(t)))
}
