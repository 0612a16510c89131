package spoke

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// beats sends a heartbeat every interval, from its own goroutine: nothing that
// an agent or the backlog does can hold it up.
func (s *Spoke) beats(ctx context.Context) error {
	tick := time.NewTicker(s.Interval)
	defer tick.Stop()
	for {
		if s.link.State().Up {
			if err := s.beat(ctx); err != nil && ctx.Err() == nil {
				s.Log.WarnContext(ctx, "sending a heartbeat", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.linkUp: // the hub should not wait an interval for the first sign
		}
	}
}

func (s *Spoke) beat(ctx context.Context) error {
	queued, err := s.backlog.ReadyCount(ctx)
	if err != nil {
		return err
	}
	wire, err := s.note(&commands.Heartbeat{IntervalMS: s.Interval.Milliseconds(), Slots: s.Slots, Running: s.live.count(), Queued: queued,
		Capabilities: s.Policy.Now().Capabilities, KillLevel: s.level, Version: s.Version, Agents: s.live.beats()}, nil)
	if err != nil {
		return err
	}
	_, err = s.link.Beat(ctx, wire)
	return err
}

// note signs a message that is kept in no outbox and meets no inbox: a
// heartbeat, a piece of log. Repeating one is harmless, so its sequence number
// only has to be positive.
func (s *Spoke) note(body commands.Body, re *signing.Ref) ([]byte, error) {
	conn, _ := s.hub.get()
	raw, err := signing.EncodeBody(body)
	if err != nil {
		return nil, fmt.Errorf("encoding a %s body: %w", body.Kind(), err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	kind, now := body.Kind(), time.Now()
	sealed, err := s.Keys.Signing.Seal(commands.Types[kind], signing.Header{ID: id.String(), Kind: string(kind), Iss: s.Keys.InstanceID(),
		Aud: conn.Peer, Conn: conn.ID, Epoch: conn.Epoch, Seq: now.UnixMilli(), Iat: now.UnixMilli(),
		Exp: now.Add(commands.Types[kind].Lifetime()).UnixMilli(), Wsp: "main", Re: re}, raw)
	return sealed.Wire, err
}

func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading this boot's id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
