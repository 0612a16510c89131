package spoke_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/store"
)

// What a hub has refused of a spoke's reports is in the status on its host, however often it is
// said, and a number that no report has is not.
func TestTheHostSeesWhichReportsWereRefused(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{}.Rogue(t)
	task := done(t, r)
	var seq int64
	for _, m := range r.Heard() {
		if m.Body.Kind() == commands.ResultKind {
			seq = m.Opened.Header().Seq
		}
	}
	for range 3 {
		r.Send(t, commands.QueueControl, r.Seal(t, &commands.Received{Refused: []commands.RefusedReport{{Seq: seq, Code: commands.ResultClash}, {Seq: seq + 1000, Code: commands.ReUnknown}}}, nil, nil).Envelope)
	}

	var v struct {
		Refused []store.RefusedReport `json:"refused_reports"`
	}
	meshtest.Await(t, "the refusal in the status", func() bool {
		r.Spoke.Do(t, "GET", "/api/v1/tasks/"+task, nil, &v)
		return len(v.Refused) > 0
	})
	require.Len(t, v.Refused, 1)
	require.Equal(t, store.RefusedReport{Kind: "agent.result", Seq: seq, Code: "RESULT_CONFLICT", Hub: "lab", At: v.Refused[0].At}, v.Refused[0])
	require.Equal(t, 1, r.Spoke.Count(t, `SELECT count(*) FROM audit WHERE action = 'report.refused_by_peer'`))
}
