package hub

import (
	"context"
	"sync"

	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/store"
)

// readAll reads the reports of every living connection until ctx ends.
func (h *Hub) readAll(ctx context.Context) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	ends := map[string]context.CancelFunc{} // by peer
	for {
		living := map[string]bool{}
		for _, p := range h.peers.all() {
			if peer := string(p.Peer); p.State == store.Active || p.State == store.Suspended {
				living[peer] = true
				if ends[peer] == nil {
					ends[peer] = h.read(ctx, peer, &reading)
				}
			}
		}
		for peer, end := range ends {
			if !living[peer] {
				end()
				delete(ends, peer)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.reader:
		}
	}
}

// read starts reading what one peer reports.
func (h *Hub) read(ctx context.Context, peer string, reading *sync.WaitGroup) (end context.CancelFunc) {
	ctx, end = context.WithCancel(ctx)
	most := transport.Most{Messages: batch}
	reading.Go(func() { _ = h.fed.Reports(ctx, peer, most, h.ingest) })
	reading.Go(func() { _ = h.fed.Logs(ctx, peer, most, h.ingest) })
	return end
}
