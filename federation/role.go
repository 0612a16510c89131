package federation

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Role is what this instance is for the peers of one authority: a hub for those
// that it commands, a spoke for those that it obeys. Fields may be nil.
type Role struct {
	Handlers []Handler // what the messages of these peers mean

	// Load is what a heartbeat to the peer of conn, which has a grant, tells about the work
	// that is done here. It must not wait for anything. Nil where nothing is done.
	Load func(conn string, g store.GrantTerms) commands.Heartbeat

	// End ends the work of a connection inside the transaction that ends the
	// connection. It may run again after an outage of the database.
	End func(ctx context.Context, tx *store.Tx, c store.Connection) error

	// Ended is told after that transaction.
	Ended func(ctx context.Context, c store.Connection)

	// Recalled takes in what a peer recalls of this instance's words, inside a
	// transaction, after this instance was restored from a backup. It returns why some of
	// it is strange: this instance has not said that.
	Recalled func(ctx context.Context, tx *store.Tx, c store.Connection, r *commands.Recalled) (strange []error, err error)

	// Blobs answers what a peer that is commanded asks about blobs; see [transport.Hub.Blobs]. Nil: it is told to come again later.
	Blobs func(ctx context.Context, conn string, f transport.BlobFrame) transport.BlobFrame

	// Holds names what this instance holds of blobs that peers have brought. Where that may have lost some it has another name, and the peers
	// offer theirs once more. "" = it does not say; nil where nothing is held.
	Holds func() string

	// Changed is told when something about a connection or its link has changed. It must not block.
	Changed func()

	// MayStart is told when what a peer that is obeyed kept from starting may start.
	MayStart func()

	// Lease is how long a peer that is obeyed may be silent before nothing new is
	// started for it. Required of the role for peers that are obeyed.
	Lease func() time.Duration
}

// A role is a Role that is served: an exchange has the one of its connection for
// as long as it lives.
type role struct {
	Role
	handlers map[commands.Kind]*Handler
}

// Serve lets the board serve the connections of one authority, which it had left
// alone before: nothing was read from these peers or sent to them. It may be called
// before Start and while Run serves others, once for each authority.
func (b *Board) Serve(a store.Authority, r Role) {
	served := &role{r, map[commands.Kind]*Handler{}}
	for _, h := range append(slices.Clone(r.Handlers), keySets) {
		for _, kind := range h.Kinds {
			served.handlers[kind] = &h
		}
	}
	b.mu.Lock()
	if b.roles == nil {
		b.roles = map[store.Authority]*role{}
	}
	b.roles[a] = served
	b.mu.Unlock()
	b.changed()
}

// roleFor returns the role that serves connections of an authority, or nil.
func (b *Board) roleFor(a store.Authority) *role {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roles[a]
}

// end ends the work of a connection that ends, in the transaction of its end.
func (b *Board) end(ctx context.Context, tx *store.Tx, c store.Connection) error {
	if r := b.roleFor(c.Authority); r != nil && r.End != nil {
		return r.End(ctx, tx, c)
	}
	return nil
}

// ended tells, after that transaction, the role that had the connection.
func (b *Board) ended(ctx context.Context, c store.Connection) {
	if r := b.roleFor(c.Authority); r != nil && r.Ended != nil {
		r.Ended(ctx, c)
	}
}
