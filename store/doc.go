// Package store keeps one instance's facts in its Postgres: transactions and
// schema, connections, the inbox and outbox, the hub's mirrors, and the audit.
//
// The database decides. Order, leases, duplicates and time are facts of SQL;
// what two processes could race on is one statement. A decision, its effect,
// the message that tells of it and its audit row share one transaction, a [Tx],
// so a crash leaves all of them or none.
//
// An answer to a commit can be lost although the commit happened. Every method
// here may therefore be called again with the same arguments, and does so by
// itself while the server restarts: the ids that callers choose make the second
// call find what the first one did.
package store
