// Package backlog keeps the tasks of an instance in its database and decides
// who may claim them.
//
// Several workspaces share one [Backlog]; a [Workspace] is what people and
// workers see of it. A task that has not ended stands in exactly one place:
// ready to be claimed, due later, parked, or held by an attempt with a lease.
// What two claimers could race on is one statement, and whoever writes to a
// claimed task shows the fence that its claim gave it: a stale one changes
// nothing.
//
// The backlog knows nothing of messages. When a task moves that a connection
// asked for, it reports the fact, in the same transaction, to the function that
// [Open] was given; what is sent to whom is that function's affair.
package backlog
