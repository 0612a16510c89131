package spoke

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An agent may be killed before its start is recorded. The start goes with the end, whose fence is that of the kill.
func TestAStartGoesWithTheEndOfAKill(t *testing.T) {
	t.Parallel()
	var u unrecorded
	start := &backlog.Start{Fence: backlog.Fence{Task: "a", Attempt: 1, Epoch: 1}, Pid: 7}
	u.note([]backlog.Progress{{Start: start}}, nil, errors.New("the database is away"))
	u.note([]backlog.Progress{{Start: start}}, []bool{false}, nil) // it is tried again, and the kill has its fence
	end := &backlog.End{Fence: backlog.Fence{Task: "a", Attempt: 1, Epoch: 2}}
	other := &backlog.End{Fence: backlog.Fence{Task: "a", Attempt: 2, Epoch: 3}}
	batch := []backlog.Progress{{End: end}, {End: other}}

	u.join(batch)

	require.Equal(t, &backlog.Start{Fence: end.Fence, Pid: 7}, batch[0].Start)
	require.Nil(t, batch[1].Start, "of another attempt")
	require.EqualValues(t, 1, start.Fence.Epoch, "what is tried alone stays")
	require.Equal(t, start, u.took(end.Fence))
}
