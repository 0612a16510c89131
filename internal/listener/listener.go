// Package listener serves the API of a hub to other programs over TCP.
//
// Who asks shows a token; what it may ask is decided where the API is served. Beyond loopback all of it
// is TLS 1.3. A request names this host exactly, so that no web page reaches it under a name of its own, and comes from
// no other page. Nobody holds it up for long: connections, requests, bodies, answers and wrong tokens have bounds.
package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/refusals"
	"github.com/spawnmesh/spawnmesh/store"
)

// idleTime is how long a connection may wait for its next request.
const idleTime = 2 * time.Minute

// A Config says where the API is served, and as what.
type Config struct {
	Address   string   // host and port
	Cert, Key string   // files with a certificate and its key; both empty: without TLS, on loopback only
	Hosts     []string // by which names clients reach it, besides those of loopback
	Bounds
}

// A Listener has the address of a [Config].
type Listener struct {
	net    net.Listener
	bound  *bounded
	scheme string
	hosts  map[string]bool // as requests name them
	log    *slog.Logger

	requests  *requestLog
	limits    *limits
	open      *openRequests
	badTokens *refusals.Counter
	db        *store.DB
}

// Open takes the address of a configuration. From then on connections wait.
func Open(ctx context.Context, c Config, log *slog.Logger) (*Listener, error) {
	if err := c.Bounds.Check(); err != nil {
		return nil, err
	}
	bounds := c.Bounds.Whole()
	l := &Listener{scheme: "http", log: log, requests: newRequestLog(log), limits: newLimits(bounds.Rate), open: newOpenRequests(bounds.Open),
		badTokens: refusals.New(refusedToken("", "tokens were refused for too many different reasons to keep each"))}
	address, pair, err := c.read(log)
	if err != nil {
		return nil, err
	}
	// What was looked at is what is taken: the name is not resolved again.
	taken, err := new(net.ListenConfig).Listen(ctx, "tcp", address.String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, commands.Refuse(commands.Conflict, "something listens on %s already", c.Address).Hinting("choose another --api; port 0 picks a free one")
	}
	if err != nil {
		return nil, commands.Refuse(commands.Validation, "serving the API on %s: %v", c.Address, err)
	}
	l.bound = bound(taken, bounds.Connections, log)
	l.net = l.bound
	if pair != nil {
		l.scheme = "https"
		l.net = tls.NewListener(l.bound, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: pair.get, NextProtos: []string{"http/1.1"}})
	}
	l.hosts = c.hosts(taken.Addr().(*net.TCPAddr), pair != nil)
	return l, nil
}

// certificate reads the one of the configuration, and refuses to serve others than programs of this machine without.
func (c Config) certificate(at net.IP, log *slog.Logger) (*certificate, error) {
	switch {
	case (c.Cert == "") != (c.Key == ""):
		return nil, commands.Refuse(commands.Validation, "a certificate needs its key, and a key its certificate").Hinting("give --api-cert and --api-key")
	case c.Cert == "" && !at.IsLoopback():
		return nil, commands.Refuse(commands.Validation, "%s can be reached from other machines, and tokens would travel in the clear", c.Address).
			Hinting("give --api-cert and --api-key, or serve on 127.0.0.1")
	case c.Cert == "":
		return nil, nil
	}
	pair := &certificate{cert: c.Cert, key: c.Key, log: log}
	return pair, pair.load()
}

// hosts are the names by which requests reach the listener, with its port.
func (c Config) hosts(at *net.TCPAddr, secure bool) map[string]bool {
	names := append([]string{"localhost", "127.0.0.1", "::1"}, c.Hosts...)
	if !at.IP.IsUnspecified() {
		names = append(names, at.IP.String())
	}
	hosts := map[string]bool{}
	for _, name := range names {
		name = strings.ToLower(name)
		if host, port, err := net.SplitHostPort(name); err == nil {
			hosts[net.JoinHostPort(host, port)] = true
			continue
		}
		withPort := net.JoinHostPort(strings.Trim(name, "[]"), strconv.Itoa(at.Port))
		hosts[withPort] = true
		if at.Port == 443 && secure || at.Port == 80 && !secure {
			hosts[withPort[:strings.LastIndex(withPort, ":")]] = true
		}
	}
	return hosts
}

// URL is where the API is.
func (l *Listener) URL() string { return l.scheme + "://" + l.net.Addr().String() }

// RefusedConnections counts the connections that were closed because there were too many, by cause.
func (l *Listener) RefusedConnections() map[string]int { return l.bound.refusals() }

// Close lets the address go. It is for who does not serve.
func (l *Listener) Close() error { return l.net.Close() }

// Serve answers requests with h until ctx ends, as [control.Serve] does. Tokens are those of db.
func (l *Listener) Serve(ctx context.Context, h http.Handler, db *store.DB, hurry <-chan struct{}) error {
	l.db = db
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return control.Run(ctx, &http.Server{Handler: l.admitted(h), IdleTimeout: idleTime}, l.net, hurry, l.log)
	})
	g.Go(func() error { return l.open.watch(ctx, db) })
	g.Go(func() error { return l.badTokens.Write(ctx, db, l.log) })
	return g.Wait()
}

// refusedToken is the row of the audit about who showed a token that is not valid.
func refusedToken(address, why string) store.AuditRow {
	return store.AuditRow{Actor: "anonymous", Action: "token.refused", Object: address, Code: string(commands.Unauthenticated), Why: why}
}

// read looks up the address and reads the certificate, which is nil where there is none.
func (c Config) read(log *slog.Logger) (*net.TCPAddr, *certificate, error) {
	address, err := net.ResolveTCPAddr("tcp", c.Address)
	if err != nil {
		return nil, nil, commands.Refuse(commands.Validation, "serving the API on %q: %v", commands.Clip(c.Address), err).Hinting("name it as HOST:PORT, as in 127.0.0.1:7480")
	}
	pair, err := c.certificate(address.IP, log)
	return address, pair, err
}

// CheckFiles says what is wrong with the address and the certificate by themselves; whether the address is free is not looked at.
func (c Config) CheckFiles(log *slog.Logger) error {
	_, _, err := c.read(log)
	return err
}

// Check says what is wrong with a configuration.
func (c Config) Check(ctx context.Context, log *slog.Logger) error {
	l, err := Open(ctx, c, log)
	if err != nil {
		return fmt.Errorf("looking at where the API is to be served: %w", err)
	}
	return l.Close()
}
