// Package transport carries sealed messages between instances over NATS.
//
// It moves bytes. It verifies no envelope, decides nothing and keeps no
// record: what it carries may be lost, repeated or reordered, and the two
// databases at the ends are what puts that right. Every message therefore
// travels with an id, and whoever receives one must be able to receive it
// again.
//
// A hub runs a NATS server inside its process ([Hub]). Every peer has a NATS
// account of its own on it, reaches exactly its own ten subjects, and is let
// in by [Hub.Admit] and put out by [Hub.Cut]. A spoke dials its hub as an
// ordinary client over TLS 1.3 with a pinned key ([Link]); nothing listens on
// the spoke. Large bytes travel beside all that, over a connection of their own that a spoke opens while it
// needs one ([Link.Blobs], [Hub.Blobs]).
//
// Under failure: a message is stored, synced to disk, before its sender
// learns of it. A [Hub.Publish] or [Link.Publish] that returned an error for a
// message may still have stored it; sending it again with the same id is
// right in every case. A message whose handler returned an error, or whose
// acknowledgement was lost, is handed on again. When the disk was full, or
// the server lost its store in another way, the server is restarted in place
// once the disk takes writes again; links redial by themselves.
//
// A peer is known by the id of its connection. Every peer fills queues of its
// own, and what is read is bounded in number and bytes: a flood of one takes its
// own share and nobody else's.
//
// Under concurrency: all methods of a started Hub or Link may be
// called at the same time. Each handler is called by one goroutine, one batch
// after another, and what arrived meanwhile makes up the next batch.
package transport

import (
	"errors"
	"fmt"
	"strings"
)

const (
	maxPayload = 512 << 10 // bytes of one message with its headers

	// MaxCommand and MaxReport bound a Body, in bytes. They leave room for
	// headers under the limits of the streams.
	MaxCommand = 255 << 10
	MaxReport  = 511 << 10
)

var (
	// ErrQuota says that the receiving side holds as many messages of this
	// kind as it will. The message was not stored; back off, send it again.
	ErrQuota = errors.New("the queue is full")

	// ErrUnavailable says that the message could not be stored now, or that
	// nobody can tell whether it was: the link is down, the server has no
	// store, the disk is full. Send it again with the same id.
	ErrUnavailable = errors.New("the queue cannot be reached")

	// ErrRefused says that the hub admits nobody with this key, now or any more.
	ErrRefused = errors.New("the hub does not admit this key: it is starting, or has suspended or ended the connection")

	// ErrPin says that the hub showed another key than the pinned one.
	// Nothing was sent to it.
	ErrPin = errors.New("the hub's key differs from the pinned one")

	// ErrClosed says that the hub was closed meanwhile.
	ErrClosed = errors.New("closed")
)

// A Command travels from a hub to one peer.
type Command struct {
	Conn     string // id of the connection with the peer it is for
	Queue    string // commands.QueueRun or QueueControl
	Verb     string // what is asked, a subject token such as "spawn"
	ID       string // chosen by the sender; what a second delivery is known by
	Envelope []byte // at most MaxCommand bytes; left unchanged

	// Deliveries counts how often it was handed on, from 1, since the peer
	// last connected. The sender leaves it zero.
	Deliveries int
}

// A Report travels from a peer to its hub.
type Report struct {
	// Conn is the id of the connection with the sender. On arrival it is what the hub's
	// server enforced, whatever the sender claims. The sender leaves it empty.
	Conn     string
	Queue    string // commands.QueueEvents, QueueLogs or QueueResults
	ID       string // as the sender gave it, or its pack's; possibly forged or empty: the envelope decides
	Envelope []byte // at most MaxReport bytes; left unchanged

	// Deliveries counts how often it was handed on, from 1, since the hub's
	// server started. The sender leaves it zero.
	Deliveries int
}

// The forms of names are checked by hand: compiling regular expressions would
// cost every start of every shim, which is this same program.

const lowerAlnum, alnum = "abcdefghijklmnopqrstuvwxyz0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// made reports whether s has least to most bytes, the first of first and the
// others of first and rest.
func made(s string, least, most int, first, rest string) bool {
	for i := range len(s) {
		if !strings.Contains(first, s[i:i+1]) && (i == 0 || !strings.Contains(rest, s[i:i+1])) {
			return false
		}
	}
	return len(s) >= least && len(s) <= most
}

func validID(s string) bool      { return made(s, 1, 63, lowerAlnum, "-") }
func validJoinID(s string) bool  { return made(s, 16, 64, alnum, "") }
func validMessage(s string) bool { return made(s, 1, 128, alnum, "_.:-") }

func checkID(what, id string) error {
	if !validID(id) {
		return fmt.Errorf("%s %q is not a lower-case name of at most 63 letters, digits and dashes", what, id)
	}
	return nil
}

func checkMessage(id string, body []byte, limit int) error {
	switch {
	case !validMessage(id):
		return fmt.Errorf("message id %q is not usable as a header", id)
	case len(body) > limit:
		return fmt.Errorf("message %s has %d bytes, more than the %d that may travel", id, len(body), limit)
	}
	return nil
}
