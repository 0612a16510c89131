package transport

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	startTimeout = time.Minute // of a start, where its caller is more patient: a busy host is slow, and not broken

	// maxPending is how many bytes may wait for one connection, those of this
	// process included, before the server drops it.
	maxPending = 16 << 20
)

// serverOptions are those of an embedded server without a port. Nobody is there to
// reload them. dir is an empty directory.
func serverOptions(name, dir string) *server.Options {
	return &server.Options{
		ServerName:             name,
		DontListen:             true,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		JetStream:              true,
		JetStreamDomain:        name,
		StoreDir:               dir,
		JetStreamMaxStore:      1 << 20,                                     // nothing is kept in files
		JetStreamMaxMemory:     1 << 50,                                     // each stream has a bound of its own
		JetStreamLimits:        server.JSLimitOpts{DefaultMaxConsumers: -1}, // two per peer
		MaxPayload:             maxPayload,
		MaxPending:             maxPending,
		MaxSubs:                64,
		WriteDeadline:          5 * time.Second,
		PingInterval:           15 * time.Second,
		MaxPingsOut:            2,
	}
}

// launch starts srv and waits until it takes connections and has its streams.
// A server that does not get there before ctx ends is stopped.
func launch(ctx context.Context, srv *server.Server, log *slog.Logger) error {
	said := newServerLog(log)
	srv.SetLoggerV2(said, false, false, false)
	srv.Start()
	for ctx.Err() == nil && said.fatal() == "" {
		if srv.ReadyForConnections(50*time.Millisecond) && srv.JetStreamEnabled() {
			return nil
		}
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	return errors.New(cmp.Or(said.fatal(), "it did not get ready in time: is the host very busy? start again"))
}
