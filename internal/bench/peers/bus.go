package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// body is as long as that of a small order.
var body = make([]byte, 256)

// A message is what travels, after its signature.
type message struct {
	ID   uuid.UUID `json:"id"`
	Kind string    `json:"kind"`
	Body []byte    `json:"body,omitempty"`
}

func seal(key ed25519.PrivateKey, m message) []byte {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // no such value
	}
	return append(ed25519.Sign(key, text), text...)
}

// open verifies messages of the holder of key.
func open[M interface{ Data() []byte }](key ed25519.PrivateKey, batch []M) ([]message, error) {
	list := make([]message, len(batch))
	for i, m := range batch {
		raw := m.Data()
		if len(raw) < ed25519.SignatureSize || !ed25519.Verify(key.Public().(ed25519.PublicKey), raw[ed25519.SignatureSize:], raw[:ed25519.SignatureSize]) {
			return nil, errors.New("a message has a wrong signature")
		}
		if err := json.Unmarshal(raw[ed25519.SignatureSize:], &list[i]); err != nil {
			return nil, fmt.Errorf("reading a message: %w", err)
		}
	}
	return list, nil
}

// A bus is a NATS server in this process and a connection of each side to it, over loopback.
type bus struct {
	server         *server.Server
	hub, spoke     *nats.Conn
	hubJS, spokeJS jetstream.JetStream
}

func serve(dir string) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, fmt.Errorf("making a NATS server: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return nil, errors.New("the NATS server takes no connections")
	}
	return s, nil
}

func newBus(ctx context.Context, dir string) (b *bus, err error) {
	b = &bus{}
	if b.server, err = serve(dir); err != nil {
		return nil, err
	}
	for _, side := range []struct {
		conn **nats.Conn
		js   *jetstream.JetStream
	}{{&b.hub, &b.hubJS}, {&b.spoke, &b.spokeJS}} {
		if *side.conn, err = nats.Connect(b.server.ClientURL()); err != nil {
			b.close()
			return nil, fmt.Errorf("connecting to the NATS server: %w", err)
		}
		if *side.js, err = jetstream.New(*side.conn, jetstream.WithPublishAsyncMaxPending(4*most)); err != nil {
			b.close()
			return nil, err
		}
	}
	for _, name := range []string{"orders", "reports"} {
		if _, err := b.hubJS.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: jetstream.MemoryStorage, MaxAge: time.Minute}); err != nil {
			b.close()
			return nil, fmt.Errorf("making the stream of %s: %w", name, err)
		}
	}
	return b, nil
}

func (b *bus) close() {
	for _, c := range []*nats.Conn{b.hub, b.spoke} {
		if c != nil {
			c.Close()
		}
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// publish returns when the server has taken all.
func (b *bus) publish(ctx context.Context, js jetstream.JetStream, subject string, list [][]byte) error {
	for _, m := range list {
		if _, err := js.PublishAsync(subject, m); err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listen pulls what comes until ctx ends.
func (b *bus) listen(ctx context.Context, conn *nats.Conn, stream string) (<-chan jetstream.Msg, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	c, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: "peer", AckPolicy: jetstream.AckAllPolicy, MaxAckPending: 16 * most})
	if err != nil {
		return nil, fmt.Errorf("making the consumer of %s: %w", stream, err)
	}
	came := make(chan jetstream.Msg, most)
	pulling, err := c.Consume(func(m jetstream.Msg) {
		select {
		case came <- m:
		case <-ctx.Done():
		}
	}, jetstream.PullMaxMessages(4*most))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, pulling.Stop)
	return came, nil
}
