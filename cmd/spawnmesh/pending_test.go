package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// Who changes a connection learns what the change still waits for, and what of that is
// theirs to do.
func TestWhatAChangeOfAConnectionWaitsFor(t *testing.T) {
	t.Parallel()
	change := func(a store.Authority, state store.ConnState, untold bool) federation.Changed {
		return federation.Changed{Connection: store.Connection{ID: "01a2", Name: "lab", Authority: a, State: state}, Untold: untold}
	}
	suspendedThere := change(store.Obeys, store.Active, false)
	suspendedThere.Says = commands.ConnectionView{State: "suspended", Reason: "lunch"}
	const untold = "lab is not linked and has not been told yet; it is told when "
	for name, test := range map[string]struct {
		verb string
		v    federation.Changed
		want string
	}{
		"told":                         {"suspend", change(store.Obeys, store.Suspended, false), ""},
		"a spoke without its hub":      {"suspend", change(store.Obeys, store.Suspended, true), untold + "the link is up again"},
		"a spoke that ends it":         {"revoke", change(store.Obeys, store.Revoked, true), untold + "it can be reached: let this spoke run until then"},
		"a hub without its spoke":      {"suspend", change(store.Commands, store.Suspended, true), untold + "it dials this hub again"},
		"a hub that ends it":           {"revoke", change(store.Commands, store.Revoked, true), untold + "it dials this hub again"},
		"resumed":                      {"resume", change(store.Obeys, store.Active, true), ""},
		"resumed, and suspended there": {"resume", suspendedThere, "lab has suspended the connection, too: lunch; nothing goes over it until it is resumed there, with: spawnmesh connections resume 01a2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.Equal(t, test.want, pending(test.verb, test.v))
		})
	}
}

// What a connection waits for is to be seen later, too.
func TestAConnectionShowsWhatIsStillToBeSaid(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app{out: &out, output: "table"}
	v := connectionView{SpokeView: hub.SpokeView{Standing: federation.Standing{Connection: store.Connection{Name: "lab", Authority: store.Obeys, State: store.Active}}}}
	v.Refuses = &commands.EndedKey{Key: "k1", Code: signing.KeyRevoked}

	require.NoError(t, a.printConnection(served(v)))
	v.Refuses, v.Differs, v.Linked, v.By = nil, "it was restored", true, "uid:7"
	v.Says = commands.ConnectionView{State: "suspended", Reason: "lunch"}
	require.NoError(t, a.printConnection(served(v)))
	require.NoError(t, a.printConnections([]connectionView{served(v)}))
	v.State, v.Untold = store.Revoked, true
	require.NoError(t, a.printConnection(served(v)))

	require.Equal(t, 1, strings.Count(out.String(), "trouble    signs with the key k1, which has ended here (KEY_REVOKED), so nothing of it is taken; its operator has to tell a newer one\n"), out.String())
	require.Equal(t, 1, strings.Count(out.String(), "\ntrouble    nothing is relayed: it was restored\n"), out.String())
	require.Equal(t, 1, strings.Count(out.String(), "\nlab: nothing is relayed: it was restored\n"), out.String())
	require.Regexp(t, `(?m)^state      suspended by lab\nsuspended  by lab: lunch\nhere       active since \S+ \S+ by uid:7\n`, out.String())
	require.Equal(t, 1, strings.Count(out.String(), "told       not yet: lab is told when it can be reached; let this spoke run until then\n"), out.String())
}
