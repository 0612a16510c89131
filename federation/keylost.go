package federation

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// tellLostKeys sends a key set that a peer has lost which was restored: each once as soon as it is the next one, and again once an interval
// at most.
func (x *Exchange) tellLostKeys(ctx context.Context, found store.Agreement) {
	switch {
	case x.tellsKeys(found):
		for i := range found.KeySets { // the message server drops what it had lately
			found.KeySets[i].ID = uuid.Must(uuid.NewV7()).String()
		}
		if _, err := x.publish(ctx, found.KeySets); err != nil {
			x.log.DebugContext(ctx, "telling the peer the keys that it has lost", "err", err)
		}
	case found.KeyLost && len(found.KeySets) == 0:
		x.board.changed() // a set may have to be made
	}
}

// tellsKeys notes whether the peer has lost our key, and reports whether it is told a set now. One that is above all that it was told of
// says that it has taken those.
func (x *Exchange) tellsKeys(found store.Agreement) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	due := time.Since(x.keysTold) >= x.board.interval()
	if x.keyLost = found.KeyLost; !found.KeyLost {
		if x.keyTellings = 0; due {
			x.keysThrough = 0
		}
		return false
	}
	if len(found.KeySets) == 0 {
		return false
	}
	last := found.KeySets[len(found.KeySets)-1].Seq
	if last > x.keysThrough {
		x.keysThrough, x.keyTellings, due = last, 0, true
	}
	if due {
		x.keysTold, x.keysThrough = time.Now(), last // a peer that was restored again has lost those above it, too
		x.keyTellings++
	}
	return due
}

// losesKey reports whether the peer does not know our key any more.
func (x *Exchange) losesKey() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.keyLost
}

// staysLost reports whether the peer was told our key again, and has not taken it. The caller holds mu.
func (x *Exchange) staysLost() bool { return x.keyTellings >= patienceWithKeys }

// unheardFor says that one side does not know the key of the other, and has not learnt it; nil where that is not so, or
// may end by itself. The caller holds no lock.
func (x *Exchange) unheardFor(name string) error {
	x.mu.Lock()
	lost, unknown := x.staysLost(), x.unknownBeats >= patienceWithKeys
	x.mu.Unlock()
	r := commands.Refuse(signing.KeyUnknown, "%s", name+" "+keyLost)
	switch {
	case unknown:
		r = commands.Refuse(signing.KeyUnknown, "%s signs with a key that is not known here", name)
	case !lost:
		return nil
	}
	return r.Hinting("the key is told by itself; if this lasts, end the connection and join again").Running(revoking(name)...)
}

// keyLost is said of a peer.
const keyLost = "does not know the key that this instance signs with, as it was restored from a backup, and has not taken it though it was told again"

// LostKeyError says that the peer has lost the key that this instance signs with, and does not take it.
func (s Status) LostKeyError() error {
	if !s.KeyLost || s.State.Ended() {
		return nil
	}
	return commands.Refuse(signing.KeyUnknown, "%s %s", s.Name, keyLost).Hinting("see the log of its host; if this lasts, end the connection and join again").Running(revoking(s.Name)...)
}

// rejoin is what helps where one side does not learn the key of the other.
func (s Standing) rejoin() string {
	return "it goes on when the key is taken, which is told by itself; if this lasts, end the connection and join again: " + commands.Line(revoking(s.Name)...)
}

func revoking(name string) []string {
	return []string{"connections", "revoke", name, "--reason", "WHY"}
}
