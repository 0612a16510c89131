package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/spawnmesh/spawnmesh/internal/wait"
)

const (
	startTimeout = 10 * time.Second // until a server takes connections

	// maxPending is how many bytes may wait for one connection, those of this
	// process included, before the server drops it.
	maxPending = 16 << 20
)

// An engine runs an embedded server and restarts it in place when its store
// has stopped taking writes. A full disk is the common cause: the server
// refuses every later write until it is restarted, also when there is space
// again.
type engine struct {
	dir   string // of the store
	log   *slog.Logger
	every time.Duration // between two looks at the store; default 3 s

	boot func(context.Context) (*server.Server, error) // starts a server and all that hangs off it
	halt func()                                        // ends what boot added to the server

	mu      sync.Mutex // held while the server is started or stopped
	running *server.Server
	stop    context.CancelFunc
	watcher sync.WaitGroup
}

// start boots the first server and watches it until close. ctx bounds the
// start only: what was started outlives it, and close ends it.
func (e *engine) start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		return errors.New("starting the message server: it was started before")
	}
	srv, err := e.boot(ctx)
	if err != nil {
		return fmt.Errorf("starting the message server: %w", err)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.running, e.stop = srv, stop
	e.watcher.Go(func() { e.watch(watching) })
	return nil
}

// close stops the server and waits for everything the engine started.
func (e *engine) close() {
	e.mu.Lock()
	stop := e.stop
	e.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	e.watcher.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shut()
}

// shut stops what runs. The caller holds mu.
func (e *engine) shut() {
	e.halt()
	if e.running != nil {
		e.running.Shutdown()
		e.running.WaitForShutdown()
		e.running = nil
	}
}

// sick returns what the server knows to be wrong with its store, or nil.
func (e *engine) sick() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		return errors.New("the message server is stopped")
	}
	if h := e.running.Healthz(nil); h.Error != "" {
		return errors.New(h.Error)
	}
	return nil
}

func (e *engine) watch(ctx context.Context) {
	for ill := 0; wait.For(ctx, cmp.Or(e.every, 3*time.Second)) == nil; {
		err := e.sick()
		if err == nil {
			ill = 0
			continue
		}
		// The server's own check gives up after a millisecond, so one bad
		// answer may only mean that this machine is busy.
		if ill++; ill == 1 {
			continue
		}
		if ill == 2 {
			e.log.ErrorContext(ctx, "the message store takes no writes; free some space if the disk is full", "dir", e.dir, "err", err)
		}
		if writable(e.dir) != nil {
			continue
		}
		if err := e.restart(ctx); err != nil {
			e.log.ErrorContext(ctx, "the message server did not restart", "err", err)
			continue
		}
		e.log.InfoContext(ctx, "the message server was restarted and takes messages again", "dir", e.dir)
	}
}

func (e *engine) restart(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shut()
	srv, err := e.boot(ctx)
	if err != nil {
		return err
	}
	e.running = srv
	return nil
}

// writable tells whether the disk under dir takes a megabyte.
func writable(dir string) error {
	name := filepath.Join(dir, ".space")
	defer os.Remove(name)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("trying the disk: %w", err)
	}
	_, err = f.Write(make([]byte, 1<<20))
	return errors.Join(err, f.Sync(), f.Close())
}

// serverOptions are what both kinds of embedded server share. There is
// nobody in here to reload them, and no port but the one a hub adds.
func serverOptions(name, dir string) (*server.Options, error) {
	if dir == "" {
		return nil, errors.New("no directory for the message store")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the message store: %w", err)
	}
	return &server.Options{
		ServerName:             name,
		DontListen:             true,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		JetStream:              true,
		JetStreamDomain:        name,
		StoreDir:               dir,
		SyncAlways:             true,
		JetStreamMaxStore:      1 << 50,                                     // each stream has a bound of its own
		JetStreamMaxMemory:     1 << 20,                                     // nothing is kept in memory only
		JetStreamLimits:        server.JSLimitOpts{DefaultMaxConsumers: -1}, // two per peer
		MaxPayload:             maxPayload,
		MaxPending:             maxPending,
		MaxSubs:                64,
		WriteDeadline:          5 * time.Second,
		PingInterval:           15 * time.Second,
		MaxPingsOut:            2,
	}, nil
}

// launch starts srv and waits until it takes connections and has its store.
// A server that does not get there is stopped.
func launch(srv *server.Server, log *slog.Logger) error {
	said := newServerLog(log)
	srv.SetLoggerV2(said, false, false, false)
	srv.Start()
	for limit := time.Now().Add(startTimeout); time.Now().Before(limit) && said.fatal() == ""; {
		if srv.ReadyForConnections(50*time.Millisecond) && srv.JetStreamEnabled() {
			return nil
		}
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	return errors.New(cmp.Or(said.fatal(), "it did not get ready"))
}
