package commands

// The queues of a connection that messages travel in. Each has its own quota, and
// a full one holds up no other: a hub can kill what it can no longer spawn.
const (
	QueueRun     = "run" // to a spoke: commands that start work
	QueueControl = "ctl" // to a spoke: everything else
	QueueEvents  = "evt" // to a hub: receipts and state changes
	QueueLogs    = "log" // to a hub: output
	QueueResults = "res" // to a hub: results
)

// HeldWhileSuspended reports whether a queue is not read while its connection is suspended: what
// is in it starts work.
func HeldWhileSuspended(queue string) bool { return queue == QueueRun }
