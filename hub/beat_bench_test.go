package hub

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// The heartbeats of 10,000 agents on 100 spokes: one operation is one interval's
// worth, so ns/op over the interval of 10 s is the share of a core.
func BenchmarkHeartbeatsOf10000Agents(b *testing.B) {
	const spokes, agents, interval = 100, 100, 10 * time.Second
	signer, err := signing.NewSigner(bytes.Repeat([]byte{1}, 32))
	require.NoError(b, err)
	self := signing.InstanceIDOf(signer.Public())
	h := &Hub{}
	h.roster.beats = map[string]store.Beat{}
	var list []*peer
	for range spokes {
		conn := uuid.Must(uuid.NewV7()).String()
		list = append(list, &peer{store.Connection{ID: conn, Peer: signing.InstanceID(conn), State: store.Active},
			signing.Verifier{Self: self, Conn: conn, Epoch: 1, Keys: map[signing.KeyID]signing.PeerKey{
				signer.KeyID(): {ID: signer.KeyID(), Owner: self, Public: signer.Public()}}}})
	}
	h.peers.set(list)
	body := &commands.Heartbeat{IntervalMS: interval.Milliseconds(), Slots: agents, Running: agents, KillLevel: "cgroup", Version: "bench"}
	for range agents {
		body.Agents = append(body.Agents, commands.AgentBeat{Task: uuid.Must(uuid.NewV7()).String(), Attempt: 1, State: commands.Running, RSS: 1 << 20, CPUMS: 12345})
	}
	raw, err := signing.EncodeBody(body)
	require.NoError(b, err)
	wires := make([][]byte, spokes)
	for i, p := range list {
		s, err := signer.Seal(signing.Peer, signing.Header{ID: uuid.NewString(), Kind: "peer.heartbeat", Iss: self, Aud: self, Conn: p.ID, Epoch: 1, Seq: 1,
			Iat: time.Now().UnixMilli(), Exp: time.Now().Add(time.Hour).UnixMilli(), Wsp: "main"}, raw)
		require.NoError(b, err)
		wires[i] = s.Wire
	}
	for b.Loop() {
		for i, p := range list {
			h.beat(b.Context(), string(p.Peer), wires[i])
		}
	}
	require.Len(b, h.roster.beats, spokes)
	perInterval := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(100*float64(perInterval)/float64(interval), "%core")
	b.ReportMetric(float64(perInterval.Nanoseconds())/(spokes*agents), "ns/agent")
	b.Logf("%d bytes a message", len(wires[0]))
}
