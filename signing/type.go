package signing

import "time"

// A Type says what a message is for, and of which version its envelope is. It is
// signed together with the header.
type Type string

// The types of version 2, the only one that is spoken here.
const (
	Command Type = "application/vnd.spawnmesh.command.v2+json" // one side asks
	Event   Type = "application/vnd.spawnmesh.event.v2+json"   // something happened in an attempt
	Result  Type = "application/vnd.spawnmesh.result.v2+json"  // how a task ended
	Receipt Type = "application/vnd.spawnmesh.receipt.v2+json" // what the executing side did with a command
	Peer    Type = "application/vnd.spawnmesh.peer.v2+json"    // between the instances themselves
	KeySet  Type = "application/vnd.spawnmesh.keyset.v2+json"  // the keys of an instance
)

// Checkpoint is no message: what an instance says of its audit, signed with its identity key.
const Checkpoint Type = "application/vnd.spawnmesh.checkpoint.v1"

// version is that of the types, and "v" of every header.
const version = 2

// lifetimes is how long a message of each type may stay acceptable.
var lifetimes = map[Type]time.Duration{
	Command: 7 * 24 * time.Hour,
	Event:   30 * 24 * time.Hour,
	Result:  30 * 24 * time.Hour,
	Receipt: 30 * 24 * time.Hour,
	Peer:    30 * 24 * time.Hour,
	KeySet:  90 * 24 * time.Hour,
}

// Lifetime returns the longest time a message of type t may stay acceptable, 0 for a
// type that is not spoken here.
func (t Type) Lifetime() time.Duration { return lifetimes[t] }

// answers reports whether messages of type t must name the command they are about.
func (t Type) answers() bool { return t == Event || t == Result || t == Receipt }

func (t Type) maxSignatures() int {
	if t == Peer || t == KeySet {
		return 4
	}
	return 1
}
