package hub_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
)

// The names of what programs read of a spoke are those of the API, and of "-o json".
func TestTheNamesOfWhatIsKnownOfASpoke(t *testing.T) {
	t.Parallel()
	at, freeze, key, beat := time.Now(), &commands.Freeze{}, &commands.EndedKey{}, &federation.RefusedBeat{}
	var v hub.SpokeView
	names := func() string {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		var object map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &object))
		return strings.Join(slices.Sorted(maps.Keys(object)), " ")
	}
	require.Equal(t, "authority created_at epoch id link_key linked liveness name peer peer_says queued running since slots state unconfirmed", names())

	v.By, v.Reason = "x", "x"
	v.Linked, v.LinkedSince, v.Remote, v.Liveness, v.LastSeen, v.NextExpected = true, &at, "host:1", hub.Alive, &at, &at
	v.ClockOffset, v.BeatRefused, v.Ahead, v.Slots, v.Running, v.Queued, v.Unconfirmed = "3s", beat, beat, 1, 1, 1, 1
	v.Capabilities, v.KillLevel, v.Isolation, v.Version, v.Policy, v.LeaseMS = []string{"x"}, "x", "x", "x", "x", 1
	v.Stopping, v.StartsNone, v.Declines, v.Queues = true, "x", []commands.Decline{{}}, []federation.QueueView{{}}
	v.Limited, v.Full, v.FullSince, v.Differs, v.RefusesKeys, v.KeyRevoked, v.Refuses = true, true, &at, "x", "x", true, key
	v.Frozen, v.FrozenScope, v.FreezeUnheard = freeze, "x", true

	require.Equal(t, "authority beat_refused by capabilities clock_offset created_at declines differs epoch freeze_unheard frozen frozen_scope full full_since id isolation"+
		" key_revoked kill_level last_seen lease_ms limited link_key linked linked_since liveness name next_expected_at peer peer_says policy queued queues reason refuses refuses_keys"+
		" remote running since slots starts_none state stopping unconfirmed version", names())
}
