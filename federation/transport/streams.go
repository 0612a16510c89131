package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spawnmesh/spawnmesh/commands"
)

const (
	queuePending = 64 // commands handed to a peer and not yet acknowledged, per queue
	unbounded    = -1 // of such a number; what is read at a time bounds it
	ackWait      = 10 * time.Second
	callTimeout  = 5 * time.Second // one request to the server

	takeName = "take" // of the consumer of each queue of reports
)

// Queues are work queues in memory that refuse what does not fit: nothing that
// was accepted is discarded to make room. What waits in them ends with the server;
// see docs/decisions/0019.

func commandStream(quota int64, bytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 streamCommands,
		Subjects:             []string{queueSubject("*", commands.QueueRun), queueSubject("*", commands.QueueControl)},
		Retention:            jetstream.WorkQueuePolicy,
		Storage:              jetstream.MemoryStorage,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		MaxMsgsPerSubject:    quota,
		MaxBytes:             bytes,
		MaxMsgSize:           256 << 10,
		MaxAge:               30 * 24 * time.Hour,
		Duplicates:           10 * time.Minute,
		AllowMsgTTL:          true,
		DenyDelete:           true,
	}
}

// reportStreams are the queues of one peer's reports: what it may fill, and
// nobody else. Logs have one of their own, so that a flood of them does not
// keep out the results.
func reportStreams(conn string, quota int64, bytes int64) []jetstream.StreamConfig {
	var all []jetstream.StreamConfig
	for _, group := range groups {
		s := jetstream.StreamConfig{
			Name:                 group.stream(conn),
			Retention:            jetstream.WorkQueuePolicy,
			Storage:              jetstream.MemoryStorage,
			Discard:              jetstream.DiscardNew,
			DiscardNewPerSubject: true,
			MaxMsgsPerSubject:    quota,
			MaxBytes:             bytes,
			MaxMsgSize:           maxPayload,
			Duplicates:           10 * time.Minute,
		}
		for _, queue := range group.queues {
			s.Subjects = append(s.Subjects, reportSubject(conn, queue))
		}
		all = append(all, s)
	}
	return all
}

// queueConsumer reads a work queue, or the part of it that filter selects.
func queueConsumer(name, filter string, pending int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       name,
		FilterSubject: filter,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxDeliver:    -1,
		MaxAckPending: pending,
		MaxWaiting:    16,
		MemoryStorage: true,
	}
}

func commandConsumer(conn, queue string) jetstream.ConsumerConfig {
	return queueConsumer(consumerName(conn, queue), queueSubject(conn, queue), queuePending)
}

// ensureStreams creates streams. To create one that is there costs nothing.
func ensureStreams(ctx context.Context, js jetstream.JetStream, streams ...jetstream.StreamConfig) error {
	for _, s := range streams {
		if _, err := js.CreateStream(ctx, s); err != nil {
			return fmt.Errorf("creating stream %s: %w", s.Name, err)
		}
	}
	return nil
}

// ensureQueues gives a peer its queues of commands and its queues of reports.
func ensureQueues(ctx context.Context, js jetstream.JetStream, conn string, reports []jetstream.StreamConfig) error {
	for _, queue := range commandQueues {
		if _, err := js.CreateOrUpdateConsumer(ctx, streamCommands, commandConsumer(conn, queue)); err != nil {
			return fmt.Errorf("creating the %s queue of %s: %w", queue, conn, err)
		}
	}
	if err := ensureStreams(ctx, js, reports...); err != nil {
		return err
	}
	for _, s := range reports {
		if _, err := js.CreateOrUpdateConsumer(ctx, s.Name, queueConsumer(takeName, "", unbounded)); err != nil {
			return fmt.Errorf("creating the queue of stream %s: %w", s.Name, err)
		}
	}
	return nil
}

// dropQueues removes a peer's queues and the messages that still wait.
func dropQueues(ctx context.Context, js jetstream.JetStream, conn string) error {
	stream, err := js.Stream(ctx, streamCommands)
	if err != nil {
		return fmt.Errorf("finding stream %s: %w", streamCommands, err)
	}
	for _, queue := range commandQueues {
		err := stream.DeleteConsumer(ctx, consumerName(conn, queue))
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("deleting the %s queue of %s: %w", queue, conn, err)
		}
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(queueSubject(conn, queue))); err != nil {
			return fmt.Errorf("dropping the %s commands of %s: %w", queue, conn, err)
		}
	}
	for _, group := range groups {
		err := js.DeleteStream(ctx, group.stream(conn))
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("deleting stream %s: %w", group.stream(conn), err)
		}
	}
	return nil
}
