package spoke_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store"
)

// Every reason that keeps orders of a hub from being done here is told on the host.
func TestWhatKeepsOrdersOfAHub(t *testing.T) {
	t.Parallel()
	past := time.Now().Add(-time.Hour)
	base := spoke.HubView{Standing: federation.Standing{Connection: store.Connection{ID: "7", Name: "lab", State: store.Active, Authority: store.Obeys, Since: past, By: "uid:0", Reason: "sold"}, Linked: true,
		Says: commands.ConnectionView{State: "active"}}}
	tests := map[string]struct {
		change func(v *spoke.HubView)
		code   commands.Cause
		says   string
		fix    string
	}{
		"its end":      {func(v *spoke.HubView) { v.State, v.Linked, v.LinkError = store.Revoked, false, "x" }, commands.CauseConnection, "is revoked by uid:0: sold", "spoke join"},
		"a suspension": {func(v *spoke.HubView) { v.State = store.Suspended }, commands.CauseConnection, "is suspended by uid:0: sold", "spawnmesh connections resume lab"},
		"of the hub":   {func(v *spoke.HubView) { v.Says = commands.ConnectionView{State: "suspended", Reason: "a\nb"} }, commands.CauseConnection, "is suspended by lab: a b", "spawnmesh connections resume 7"},
		"no link":      {func(v *spoke.HubView) { v.Linked, v.LinkError = false, "refused" }, commands.CauseLink, "is not linked: refused", "by itself"},
		"its grant": {func(v *spoke.HubView) {
			v.Declines = []commands.Decline{{Code: commands.DeclinesExpired, Since: past.UnixMilli()}}
		}, commands.CauseGrant, "may order nothing: its grant has expired", "spawnmesh connections grant lab --expires never"},
		"a kind of order": {func(v *spoke.HubView) {
			v.Declines = []commands.Decline{{Code: commands.DeclinesKind, What: "agent.spawn"}, {Code: commands.DeclinesKind, What: "agent.kill"}}
		}, commands.CauseGrant, "may not order agent.spawn, agent.kill", "spawnmesh connections grant lab --kinds agent.spawn,"},
		"the policy": {func(v *spoke.HubView) {
			v.Declines = []commands.Decline{{Code: commands.DeclinesPolicy, What: "agent.spawn"}}
		}, commands.CausePolicy, "may start nothing: the policy of this host", "policy.yaml"},
		"a freeze": {func(v *spoke.HubView) {
			v.Frozen, v.FrozenScope = &commands.Freeze{Frozen: true, By: "uid:0", Reason: "my turn"}, "lane:default"
		}, commands.CauseFreeze, "nothing that it orders is started: frozen here by uid:0: my turn", "spawnmesh unfreeze --scope lane:default --reason WHY"},
		"its freeze": {func(v *spoke.HubView) { v.Says.Freeze = &commands.Freeze{Frozen: true, By: "uid:0", Reason: "deploy"} }, commands.CauseFreeze, "has frozen its agents: uid:0: deploy", "unfrozen there"},
		"its clock, which is ahead": {func(v *spoke.HubView) {
			v.BeatRefused = &federation.RefusedBeat{Code: signing.TimeFuture, Why: "issued 10m0s in this host's future"}
		}, commands.CauseClock, "its heartbeats are refused here (TIME_FUTURE): issued 10m0s", "set the one that is wrong"},
		"its clock, which is behind": {func(v *spoke.HubView) { v.ClockOffset = "-10m0s" }, commands.CauseClock, "its clock is 10m behind", "set the one that is wrong"},
		"its inbox":                  {func(v *spoke.HubView) { v.Full, v.FullSince = true, &past }, commands.CauseInbox, "no more of its messages are kept here", "--inbox-per-peer"},
	}
	require.Empty(t, base.Keeps())
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := base
			tt.change(&v)

			list := v.Keeps()

			require.Len(t, list, 1, "%v", list)
			require.Equal(t, tt.code, list[0].Code)
			require.Contains(t, list[0].Text, tt.says)
			require.Contains(t, list[0].Fix, tt.fix)
		})
	}
}

// What keeps agents of every hub from being started on a host is said of the instance itself, and goes when it is over.
func TestWhatKeepsAHostFromStartingAgents(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Slots: 1}.Start(t, "attic")
	s := m.Spokes["attic"]
	var v struct{ Reasons []commands.WhyReason }
	keeps := func() (codes []commands.Cause) {
		v.Reasons = nil
		s.Do(t, "GET", "/api/v1/instance", nil, &v)
		for _, r := range v.Reasons {
			codes = append(codes, r.Code)
		}
		return codes
	}
	require.Empty(t, keeps())
	sleeper(t, m)
	require.Equal(t, []commands.Cause{commands.CauseSlots}, keeps())
	require.Equal(t, "has all of its 1 slots in use; what is ordered waits here", v.Reasons[0].Text)
	require.EqualValues(t, 1, *v.Reasons[0].Figure)

	_, err := rewrite(t, s, limitedTo("reserve: 4096TiB"))
	require.NoError(t, err)
	require.Equal(t, []commands.Cause{commands.CauseDisk, commands.CauseSlots}, keeps())
	require.Contains(t, v.Reasons[0].Text, "starts nothing: its disk has ")

	freeze := map[string]string{"scope": "lane", "target": "default", "reason": "my turn"}
	s.Do(t, "POST", "/api/v1/workspaces/main/freezes", freeze, nil)
	require.Equal(t, []commands.Cause{commands.CauseFreeze, commands.CauseDisk, commands.CauseSlots}, keeps())
	require.Regexp(t, `^starts nothing: frozen by uid:\d+: my turn$`, v.Reasons[0].Text)
	require.Equal(t, "spawnmesh unfreeze --scope lane:default --reason WHY", v.Reasons[0].Fix)
	require.WithinDuration(t, time.Now(), *v.Reasons[0].Since, time.Hour)
	s.Do(t, "POST", "/api/v1/workspaces/main/freezes/lift", freeze, nil)
	s.Do(t, "POST", "/api/v1/workspaces/main/freezes", map[string]string{"scope": "connection", "target": "lab", "reason": "of one hub"}, nil)

	_, err = rewrite(t, s, policy.Presets["deny"])
	require.NoError(t, err)
	require.Equal(t, []commands.Cause{commands.CausePolicy, commands.CauseSlots}, keeps())
}
