package federation

import (
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Standing is how a connection stands, as both sides see it. What may keep work from going over it is told as what the
// peer does, or what is done to it.
type Standing struct {
	store.Connection
	Linked      bool                    `json:"linked"`
	LinkedSince *time.Time              `json:"linked_since,omitempty"`
	DownSince   *time.Time              `json:"down_since,omitempty"`   // when the link was found to be gone; nil = there is one, or there was none in this run
	LastSeen    *time.Time              `json:"last_seen,omitempty"`    // when its last heartbeat came
	ClockOffset string                  `json:"clock_offset,omitempty"` // how far its clock was from ours then; "" within 2 s
	BeatRefused *RefusedBeat            `json:"beat_refused,omitempty"` // why the last heartbeat that came over the link was not taken; nil = it was
	Ahead       *RefusedBeat            `json:"-"`                      // why its messages are refused for their time, and come again; nil = they are not
	Limited     bool                    `json:"limited,omitempty"`      // the peer sends more than it may
	Full        bool                    `json:"full,omitempty"`         // no more of its messages are kept, and
	FullSince   *time.Time              `json:"full_since,omitempty"`   // since when
	Differs     string                  `json:"differs,omitempty"`      // why the histories differ, so that nothing is relayed; "" = they do not
	RefusesKeys signing.Code            `json:"refuses_keys,omitempty"` // why the peer has refused the newest key set of this instance; "" = it has not
	KeyRevoked  bool                    `json:"key_revoked,omitempty"`  // the key in use towards it is revoked here
	KeyLost     bool                    `json:"-"`                      // the peer has lost that key, and has not taken it though it was told again
	Refuses     *commands.EndedKey      `json:"refuses,omitempty"`      // the key that the peer signs with, which has ended here
	Says        commands.ConnectionView `json:"peer_says"`              // what the peer said of it last; a key that it refuses only while this instance signs with it

	// What the roles of this instance know besides.
	Frozen        *commands.Freeze   `json:"frozen,omitempty"`         // what is ordered over it is frozen here
	FrozenScope   string             `json:"frozen_scope,omitempty"`   // what lifts that
	FreezeUnheard bool               `json:"freeze_unheard,omitempty"` // the peer, which obeys, has not said yet that it knows of that
	Declines      []commands.Decline `json:"declines,omitempty"`       // what the side that obeys does not take of the other, as that side says
	Queues        []QueueView        `json:"queues,omitempty"`         // what has come and waits to be taken; empty without a link
}

// A RefusedBeat says why a heartbeat of the peer was not taken.
type RefusedBeat struct {
	Code signing.Code `json:"code"`
	Why  string       `json:"why"`
}
