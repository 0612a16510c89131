package federation

import (
	"context"

	"github.com/spawnmesh/spawnmesh/federation/transport"
)

// ReconcileForTest follows the table of connections once, and reports whether nothing has to be looked at soon.
func ReconcileForTest(ctx context.Context, b *Board) (settled bool, err error) {
	return b.reconcile(ctx)
}

// WatchForTest follows what is written to the database until ctx ends.
func WatchForTest(ctx context.Context, b *Board) error { return b.watch(ctx) }

// WakeForTest is sent when the table of connections is to be read.
func WakeForTest(b *Board) <-chan struct{} { return b.wake }

// ChangedLinkForTest is told of each change of a link that b dials.
func ChangedLinkForTest(b *Board, conn string) func(transport.LinkState) { return b.changedLink(conn) }
