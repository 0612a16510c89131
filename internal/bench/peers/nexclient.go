package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

// auctionWait is how long an auction waits for one more bid after one came. Nex's own
// client waits for a second unless it is told another time (WithAuctionStall).
const auctionWait = 20 * time.Millisecond

// A nexClient asks nodes of Nex for starts, as Nex's own client does: an auction, then an
// order to who made the first bid. It is written against Nex's published messages, so
// that nothing of Nex is part of this module.
type nexClient struct{ conn *nats.Conn }

const namespace = "bench"

var errNoBid = errors.New("nobody made a bid")

// start starts /bin/true as a workload and returns when the node has said that it was.
func (c nexClient) start(ctx context.Context) error {
	bid, err := c.auction(ctx)
	if err != nil {
		return err
	}
	ask, err := json.Marshal(map[string]any{
		"name": "true", "namespace": namespace, "description": "", "workload_type": "native", "workload_lifecycle": "job",
		"run_request": `{"uri":"file:///bin/true"}`, "tags": map[string]string{},
	})
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	answer, err := c.conn.RequestWithContext(ctx, "$NEX.SVC."+namespace+".control.ADEPLOY."+bid, ask)
	if err != nil {
		return fmt.Errorf("asking for a start: %w", err)
	}
	return refused(answer)
}

// auction returns the id of the first bid. It waits for others, as long as they come.
func (c nexClient) auction(ctx context.Context) (bid string, err error) {
	inbox := c.conn.NewRespInbox()
	bids, err := c.conn.SubscribeSync(inbox)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, bids.Unsubscribe()) }()
	ask, err := json.Marshal(map[string]any{"auction_id": uuid.NewString(), "agent_type": "native", "tags": map[string]string{}})
	if err != nil {
		return "", err
	}
	if err := c.conn.PublishRequest("$NEX.SVC."+namespace+".control.AUCTION", inbox, ask); err != nil {
		return "", fmt.Errorf("asking for bids: %w", err)
	}
	for patience := 5 * time.Second; ctx.Err() == nil; patience = auctionWait {
		m, err := bids.NextMsg(patience)
		switch {
		case errors.Is(err, nats.ErrTimeout) && bid != "":
			return bid, nil
		case errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrNoResponders):
			return "", errNoBid
		case err != nil:
			return "", fmt.Errorf("waiting for bids: %w", err)
		}
		var answer struct {
			ID string `json:"bidder_id"`
		}
		if err := errors.Join(refused(m), json.Unmarshal(m.Data, &answer)); err != nil {
			return "", err
		}
		if bid == "" {
			bid = answer.ID
		}
	}
	return "", ctx.Err()
}

// refused returns what a node says is wrong.
func refused(m *nats.Msg) error {
	if why := m.Header.Get("Nats-Service-Error"); why != "" {
		return fmt.Errorf("nex: %s: %.300s", why, m.Data)
	}
	return nil
}

// await waits until a node makes bids.
func (c nexClient) await(ctx context.Context, log string) error {
	for range 100 {
		_, err := c.auction(ctx)
		if !errors.Is(err, errNoBid) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	said, _ := os.ReadFile(log)
	return fmt.Errorf("the node of Nex made no bid within 10s; it wrote:\n%s", said[max(0, len(said)-2000):])
}
