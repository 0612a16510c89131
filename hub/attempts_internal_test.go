package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/store"
)

// What a heartbeat says of one attempt says nothing of the next one.
func TestAHeartbeatOfAnotherAttempt(t *testing.T) {
	t.Parallel()
	beat := &store.Beat{Body: commands.Heartbeat{Agents: []commands.AgentBeat{{Task: "a", Attempt: 1, RSS: 7}, {Task: "b", Attempt: 2}}}}
	o := &observed{status: federation.Status{Beat: beat}}

	require.EqualValues(t, 7, o.agent("a", 1).RSS)
	require.Nil(t, o.agent("a", 2))
	require.Nil(t, o.agent("c", 1))
	require.Nil(t, (&observed{}).agent("a", 1), "nothing was heard")
}

// Until when the next attempt waits is told by the end of the last one, and not by one before it.
func TestTheNextTryFollowsTheLastAttempt(t *testing.T) {
	t.Parallel()
	ends := []commands.Ended{{Attempt: 1, Exit: commands.Exit{Code: 1}, Next: 1000}, {Attempt: 2, Exit: commands.Exit{Code: tryLater}, Next: 2000}, {Attempt: 3, Next: 3000}}
	v := AgentView{Mirror: store.Mirror{Attempt: 2, Attempts: ends, Reason: commands.Limit}}

	r := v.NextTry()

	require.Equal(t, time.UnixMilli(2000), *r.Until)
	require.Contains(t, r.Text, "(exit code 75)")
	v.Attempt = 4 // its end is not known here
	require.Nil(t, v.NextTry().Until)
}
