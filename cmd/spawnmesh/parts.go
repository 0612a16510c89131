package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Part is one thing that a spawn is made of, measured alone: the median of
// one, in milliseconds, and how many of it lie between order and start.
type Part struct {
	Name  string  `json:"name"`
	MS    float64 `json:"ms"`
	Times int     `json:"times"`
}

// Total is what the part takes on the way from order to start.
func (p Part) Total() float64 { return p.MS * float64(p.Times) }

// rounds is how often each part is measured.
const rounds = 200

// measureParts measures each part on an instance of its own below dir. Between
// order and start lie seven transactions: order, relay, intake, claim, start,
// relay, ingest; and two of everything that one message takes.
func (a *app) measureParts(ctx context.Context, dir, runtime string) (parts []Part, err error) {
	alone := *a
	alone.dataDir = filepath.Join(dir, "parts")
	alone.getenv = func(name string) string {
		if name == "DATABASE_URL" || name == "SPAWNMESH_DATABASE_URL" {
			return ""
		}
		return a.getenv(name)
	}
	in, err := alone.open(ctx, slog.New(slog.NewTextHandler(io.Discard, nil)), true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.close(ctx)) }()
	tx, err := timeEach(rounds, func(int) error {
		return in.db.Audit(ctx, store.AuditRow{Actor: "bench", Action: "bench"})
	})
	if err != nil {
		return nil, err
	}
	publish, err := timePublish(ctx, filepath.Join(in.dir, "nats"))
	if err != nil {
		return nil, err
	}
	crypto, err := timeCrypto(in.keys)
	if err != nil {
		return nil, err
	}
	parts = []Part{{"transaction, one row", tx, 7}, {"publish, synced to disk", publish, 2}, {"signature, made and verified", crypto, 2}}
	if runtime == commands.RuntimeExec {
		start, err := timeStart(ctx, in.dir)
		if err != nil {
			return nil, err
		}
		parts = append(parts, Part{"start of a process under its shim", start, 1})
	}
	return parts, nil
}

// timeEach returns the median time of n calls, in milliseconds.
func timeEach(n int, fn func(i int) error) (float64, error) {
	times := make([]float64, n)
	for i := range n {
		began := time.Now()
		if err := fn(i); err != nil {
			return 0, err
		}
		times[i] = ms(time.Since(began))
	}
	return quantile(times, 0.5), nil
}

func timePublish(ctx context.Context, dir string) (float64, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return 0, err
	}
	cert, err := federation.Certificate(key)
	if err != nil {
		return 0, err
	}
	h := &federation.Hub{Listen: "127.0.0.1:0", Dir: dir, Certificate: cert, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	nkey, err := federation.NKey(key.Seed())
	if err != nil {
		return 0, err
	}
	if err := h.Admit(ctx, federation.Peer{ID: "bench", NKey: nkey}); err != nil {
		return 0, err
	}
	if err := h.Start(ctx); err != nil {
		return 0, err
	}
	defer h.Close()
	body := make([]byte, 1024)
	return timeEach(rounds, func(i int) error {
		return errors.Join(h.Publish(ctx, []federation.Command{{Peer: "bench", Lane: federation.LaneRun, Verb: "spawn", ID: "m" + strconv.Itoa(i), Body: body}})...)
	})
}

func timeCrypto(k signing.Keys) (float64, error) {
	now, self := time.Now(), k.InstanceID()
	id := uuid.NewString()
	v := signing.Verifier{Self: self, Conn: id, Epoch: 1, Keys: map[signing.KeyID]signing.PeerKey{
		k.Signing.KeyID(): {ID: k.Signing.KeyID(), Owner: self, Public: k.Signing.Public()}}}
	h := signing.Header{ID: id, Kind: string(commands.SpawnKind), Iss: self, Aud: self, Conn: id, Epoch: 1, Seq: 1,
		Iat: now.UnixMilli(), Exp: now.Add(time.Hour).UnixMilli(), Wsp: "main"}
	return timeEach(rounds, func(int) error {
		s, err := k.Signing.Seal(signing.Command, h, []byte(`{"argv":["true"]}`))
		if err != nil {
			return err
		}
		_, err = v.Open(s.Wire, now)
		return err
	})
}

func timeStart(ctx context.Context, dir string) (float64, error) {
	if err := os.MkdirAll(filepath.Join(dir, "agents"), 0o700); err != nil {
		return 0, fmt.Errorf("making a directory for attempts: %w", err)
	}
	var agents []*supervisor.Agent
	took, err := timeEach(rounds/4, func(i int) error {
		agent, err := supervisor.Start(ctx, filepath.Join(dir, "agents", strconv.Itoa(i)), supervisor.Spec{Argv: []string{"/bin/true"}, Dir: dir})
		if err == nil {
			agents = append(agents, agent)
			<-agent.Done() // one at a time, as with one in flight
		}
		return err
	})
	for _, agent := range agents {
		err = errors.Join(err, agent.Close())
	}
	if err != nil {
		return 0, fmt.Errorf("starting processes: %w", err)
	}
	return took, nil
}
