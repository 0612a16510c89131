package federation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// The message that was made last says what a clock is, in whatever order they come and come again. A kill that is taken early, what is
// not stored by its kind and what is not authentic say nothing.
func TestTheNewestMessageSaysWhatTheClockIs(t *testing.T) {
	t.Parallel()
	in := func(seq int64) *store.Incoming { return &store.Incoming{Header: signing.Header{Seq: seq}} }
	future := &signing.Rejected{Code: signing.TimeFuture, Why: "issued 10m from now"}
	var p pace
	for _, step := range []struct {
		what  string
		came  opening
		ahead bool
	}{
		{"at its time", opening{in: in(3), stored: true}, false},
		{"an older one, refused", opening{in: in(2), rejected: future}, false},
		{"refused for its time", opening{in: in(5), rejected: future}, true},
		{"made before the clock was ahead", opening{in: in(4), stored: true}, true},
		{"a kill, taken early", opening{in: in(6), stored: true, early: true}, true},
		{"of a kind that is not stored", opening{in: in(1_700_000_000_000)}, true},
		{"refused for another reason", opening{in: in(7), rejected: commands.Refuse(signing.KeyUnknown, "no such key")}, true},
		{"not authentic", opening{rejected: future}, true},
		{"the same one, sealed again", opening{in: in(5), stored: true}, false},
		{"one more that is refused", opening{in: in(9), rejected: future}, true},
		{"one that was made after it", opening{in: in(10), stored: true}, false},
		{"the last one, refused again", opening{in: in(9), rejected: future}, false},
	} {
		p.note(step.came)
		require.Equal(t, step.ahead, p.ahead != nil, step.what)
	}
}
