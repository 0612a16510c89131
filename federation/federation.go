// Package federation exchanges signed messages with each connected instance:
// stored before they are sent, sent until they are confirmed, taken once.
//
// A [Board] owns the connections that this process serves and runs one
// [Exchange] for each. Opening, judging, storing, answering, confirming and
// relaying are the same code on both sides. Who obeys dials and who commands is
// dialled, always: commands go one way, reports the other. What messages mean is
// registered by the rooms above, for each authority in one [Role]; the exchange
// itself knows what instances say to each other: received, revoked, heartbeats
// beside the queues, and a handler for key sets on both sides. An instance may have both roles; a connection has exactly one.
//
// # What it promises
//
// A message of a stored kind is written in the transaction of the decision that
// it tells, and goes out until the peer's database says that it has it. On
// arrival it is verified, and then its inbox row, its effects, the answers to it
// and their audit are one transaction; a second copy changes nothing. What is
// not stored (heartbeats, confirmations, output) may be lost: the next one says
// the same, or it is sent again from where its receiver stands.
//
// # Under failure
//
// The database is the record. A process that dies loses which messages went out
// and sends them again; a lost confirmation is repeated by the next heartbeat,
// because a confirmation names everything that was stored. Nothing is relayed
// before both sides have compared their numbers on the present link, so a side
// that was restored from a backup is noticed before it does harm.
//
// # Under concurrency
//
// One goroutine, [Board.Run], decides which connections live here. It reads the
// table and is the only one that admits, cuts, starts and stops. Whoever changes
// a connection commits, and waits with [Board.Await] until that was done.
package federation

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Handler acts on messages of some kinds.
type Handler struct {
	Kinds []commands.Kind

	// Judge refuses a message for what it says. It is called from several
	// goroutines at a time, before the transaction. Nil: nothing is refused.
	Judge func(ctx context.Context, m *store.Incoming) *commands.Refused

	// Take acts on new messages of these kinds, in the order of their arrival and
	// inside the transaction that stores them. It may run again after an outage
	// of the database. Nil for kinds that are not stored.
	Take func(ctx context.Context, tx *store.Tx, from store.Standing, batch []*store.Incoming) error

	// Taken is told after the commit of messages that were taken, or that repeat
	// a taken one: to wake whoever waits. Nil: nobody is told.
	Taken func(ctx context.Context, batch []*store.Incoming)

	// Pass acts on messages of kinds that are not stored. An error makes the same
	// messages come again.
	Pass func(ctx context.Context, conn store.Connection, batch []*store.Incoming) error
}

// A Peer is a connection with what it takes to open its messages.
type Peer struct {
	store.Connection
	store.Verifying
	signs     signing.KeyID    // our key that the peer knows
	revoked   bool             // it is revoked here
	refuses   signing.Code     // why the peer has refused our newest key set; "" = it has not
	workspace string           // of what is not stored; for the rest the transaction asks the grant
	freezes   int64            // number of the last change of what is frozen here
	grant     store.GrantTerms // what it may ask for
}
