package meshtest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// oldStore makes a store of messages as earlier versions kept it, in files.
func oldStore(t *testing.T, dir string) {
	t.Helper()
	opts := &server.Options{ServerName: "hub", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, JetStreamDomain: "hub", StoreDir: dir}
	require.NoError(t, opts.ProcessConfigString(`accounts { HUB { jetstream: enabled, users: [{user: hub, password: hub}] } }`))
	srv, err := server.NewServer(opts)
	require.NoError(t, err)
	srv.Start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	require.True(t, srv.ReadyForConnections(Patience))
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.UserInfo("hub", "hub"))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COMMANDS", Subjects: []string{"mesh.cmd.*.run.*", "mesh.cmd.*.ctl.*"}, Retention: jetstream.WorkQueuePolicy})
	require.NoError(t, err)
	for range 25 {
		_, err := js.Publish(t.Context(), "mesh.cmd.attic.run.spawn", make([]byte, 900))
		require.NoError(t, err)
	}
}

// What stands in the directory of a hub's message server is not read, whatever has become of it:
// what was queued runs once, the start takes no memory for it, and somebody is told.
func TestTheStoreOfMessagesIsExpendable(t *testing.T) {
	old := t.TempDir()
	oldStore(t, old)
	const msgs = "jetstream/HUB/streams/COMMANDS/msgs"
	copied := func(t *testing.T, dir, from string) { require.NoError(t, os.CopyFS(dir, os.DirFS(from))) }
	changed := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			copied(t, dir, old)
			block := filepath.Join(dir, msgs, "1.blk")
			raw, err := os.ReadFile(block)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(block, change(raw), 0o600))
		}
	}
	for name, tt := range scale.SomeCases(t, 1, map[string]struct {
		plant func(t *testing.T, dir string)
		told  int
	}{
		"one flipped bit in a sequence number": {changed(func(b []byte) []byte { b[4+6] ^= 0x40; return b }), 1},
		"one truncated block":                  {changed(func(b []byte) []byte { return b[:len(b)/2] }), 1},
		"one deleted index": {func(t *testing.T, dir string) {
			copied(t, dir, old)
			require.NoError(t, os.Remove(filepath.Join(dir, msgs, "index.db")))
		}, 1},
		"the whole directory gone":                   {func(*testing.T, string) {}, 0},
		"an old copy back":                           {func(t *testing.T, dir string) { copied(t, dir, old) }, 1},
		"an old copy, where the server looks for it": {func(t *testing.T, dir string) { copied(t, filepath.Join(dir, "run"), old) }, 1},
		"an old copy, where nobody looks for it":     {func(t *testing.T, dir string) { copied(t, dir, filepath.Join(old, "jetstream")) }, 0},
	}) {
		t.Run(name, func(t *testing.T) {
			m := Start(t, "attic")
			m.Stop(t, "attic")
			var tasks []string
			for range 25 {
				tasks = append(tasks, m.Noop(t, "attic"))
			}
			m.Stop(t, "hub")
			dir := filepath.Join(m.Hub.Dir, "nats")
			require.NoError(t, os.RemoveAll(dir))
			tt.plant(t, dir)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)

			begun := time.Now()
			m.Start(t, "hub")
			m.Start(t, "attic")

			for _, id := range tasks {
				require.Equal(t, commands.Completed, m.Wait(t, id).State, id)
			}
			runtime.ReadMemStats(&after)
			require.Less(t, after.Sys-before.Sys, uint64(200<<20))
			require.Less(t, time.Since(begun), time.Minute)
			require.Equal(t, 25, m.Spokes["attic"].count(t, `SELECT count(*) FROM inbox WHERE kind = 'agent.spawn'`), "each once")
			require.Zero(t, m.Hub.count(t, `SELECT count(*) FROM mirrors WHERE attempt > 1`))
			require.Equal(t, tt.told, m.Hub.count(t, `SELECT count(*) FROM audit WHERE action = 'stream.loss' AND code = 'STREAM_LOSS'`))
			server := m.Hub.Health(t, "nats")
			require.Equal(t, "nats", server.Name)
			require.Equal(t, tt.told == 1, server.Note != "")
			left, err := filepath.Glob(filepath.Join(dir, "run", "jetstream", "*"))
			require.NoError(t, err)
			require.Empty(t, left, "nothing is kept there")
		})
	}
}
