// Package store keeps one instance's facts in its Postgres: transactions and
// schema, connections, the inbox and outbox, the hub's mirrors, and the audit.
//
// The database decides. Order, leases, duplicates and time are facts of SQL;
// what two processes could race on is one statement. A decision, its effect,
// the message that tells of it and its audit row share one transaction, a [Tx],
// so a crash leaves all of them or none.
//
// Every method tries again while the server is away, and has its effect once.
// The answer to a commit can be lost although the commit happened: the next try
// then looks for the mark that a transaction leaves in its session's row. A caller
// that gives up, or a process that ends, may call again with the same arguments:
// where callers choose ids, the second call finds what the first one did.
package store
