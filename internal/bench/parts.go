package bench

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
	"golang.org/x/sync/errgroup"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/internal/instance"
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

// measureParts measures each part on an instance of its own. Between
// order and start lie five transactions (order, intake, claim, start, ingest)
// and two of everything that one message takes.
func (b *Spawns) measureParts(ctx context.Context, o instance.Options) (err error) {
	in, err := instance.Open(ctx, o, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close(ctx)) }()
	tx, err := timeEach(rounds, func(int) error {
		return in.DB.Audit(ctx, store.AuditRow{Actor: "bench", Action: "bench"})
	})
	if err != nil {
		return err
	}
	publish, err := timePublish(ctx, filepath.Join(in.Dir, "nats"))
	if err != nil {
		return err
	}
	crypto, err := timeCrypto(in.Keys)
	if err != nil {
		return err
	}
	b.Parts = []Part{{"transaction, one row", tx, 5}, {"publish", publish, 2}, {"signature, made and verified", crypto, 2}}
	if b.Runtime == commands.RuntimeExec {
		start, err := timeStart(ctx, in.Dir)
		if err != nil {
			return err
		}
		b.Parts = append(b.Parts, Part{"start of a process under its shim", start, 1})
	}
	return nil
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
	cert, err := transport.Certificate(key)
	if err != nil {
		return 0, err
	}
	h := &transport.Hub{Listen: "127.0.0.1:0", Dir: dir, Certificate: cert, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	nkey, err := transport.NKey(key.Seed())
	if err != nil {
		return 0, err
	}
	if err := h.Admit(ctx, transport.Peer{ID: "bench", NKey: nkey}); err != nil {
		return 0, err
	}
	if err := h.Start(ctx); err != nil {
		return 0, err
	}
	defer h.Close()
	body := make([]byte, 1024)
	return timeEach(rounds, func(i int) error {
		return errors.Join(h.Publish(ctx, []transport.Command{{Conn: "bench", Queue: commands.QueueRun, Verb: "spawn", ID: "m" + strconv.Itoa(i), Envelope: body}})...)
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
		_, err = v.Open(s.Envelope, now)
		return err
	})
}

// timeStart returns the median time to a proven start, one at a time, in milliseconds.
func timeStart(ctx context.Context, dir string) (float64, error) {
	if err := os.MkdirAll(filepath.Join(dir, "agents"), 0o700); err != nil {
		return 0, fmt.Errorf("making a directory for attempts: %w", err)
	}
	times := make([]float64, rounds/4)
	for i := range times {
		start, err := startAlone(ctx, dir, "one"+strconv.Itoa(i))
		if err != nil {
			return 0, err
		}
		times[i] = ms(start)
	}
	return quantile(times, 0.5), nil
}

// startsPerSecond returns how many agents a second start and end with n at a time: no mesh
// on this host can do more.
func startsPerSecond(ctx context.Context, dir string, n int) (float64, error) {
	if err := os.MkdirAll(filepath.Join(dir, "agents"), 0o700); err != nil {
		return 0, fmt.Errorf("making a directory for attempts: %w", err)
	}
	count := max(rounds, 4*n)
	var g errgroup.Group
	g.SetLimit(n)
	began := time.Now()
	for i := range count {
		g.Go(func() error {
			_, err := startAlone(ctx, dir, "many"+strconv.Itoa(i))
			return err
		})
	}
	err := g.Wait()
	return float64(count) / time.Since(began).Seconds(), err
}

// startAlone runs an agent that does nothing, without a mesh, and returns the time to its proven start.
func startAlone(ctx context.Context, dir, name string) (start time.Duration, err error) {
	began := time.Now()
	agent, err := supervisor.Start(ctx, filepath.Join(dir, "agents", name), supervisor.Spec{Argv: []string{"/bin/true"}, Dir: dir})
	start = time.Since(began)
	if err != nil {
		return start, fmt.Errorf("starting a process: %w", err)
	}
	<-agent.Done()
	return start, agent.Close()
}
