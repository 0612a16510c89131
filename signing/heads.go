package signing

import (
	"crypto/ed25519"
	"sync"
)

// maxHeads is how many heads are kept: some hundred transactions of a peer, whose
// messages come one behind the other.
const maxHeads = 256

// Heads remembers which signatures of tree heads were verified, so the messages of one
// tree cost one verification. It holds nothing but that fact: these bytes are this key's
// signature of this head. Whether the key may sign is asked for each message.
//
// The zero value is empty and ready. It may be used from several goroutines. A nil *Heads
// remembers nothing.
type Heads struct {
	mu    sync.Mutex // guards all below
	known map[verified]struct{}
	ring  []verified // what is known, to be forgotten in this order
	next  int        // of ring: the oldest
}

// A verified is a signature that was verified, with all that it was verified against.
type verified struct {
	key  [ed25519.PublicKeySize]byte
	sig  [ed25519.SignatureSize]byte
	head head
}

// verify reports whether sig is key's signature of h.
func (k *Heads) verify(key ed25519.PublicKey, h head, sig []byte) bool {
	if len(key) != ed25519.PublicKeySize || len(sig) != ed25519.SignatureSize {
		return false
	}
	fact := verified{[ed25519.PublicKeySize]byte(key), [ed25519.SignatureSize]byte(sig), h}
	if k.knows(fact) {
		return true
	}
	if !Verify(key, treeHead, h.text(), sig) {
		return false
	}
	k.remember(fact)
	return true
}

func (k *Heads) knows(fact verified) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.known[fact]
	return ok
}

// remember puts a fact in the place of the oldest one. Two goroutines may have found the
// same one out.
func (k *Heads) remember(fact verified) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.known[fact]; ok {
		return
	}
	if k.known == nil {
		k.known = map[verified]struct{}{}
	}
	if len(k.ring) < maxHeads {
		k.ring = append(k.ring, fact)
	} else {
		delete(k.known, k.ring[k.next])
		k.ring[k.next] = fact
		k.next = (k.next + 1) % maxHeads
	}
	k.known[fact] = struct{}{}
}
