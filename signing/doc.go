// Package signing seals messages with Ed25519 keys and opens them again.
//
// A message is an envelope: a signed header and the body that the header names
// by length and digest. The bytes that were signed are the bytes that travel;
// there is one spelling of them and the reader takes no other, so no two readers
// can disagree about what a signature covers. The message type is part of what is
// signed (DSSE's pre-authentication encoding), so a message made for one purpose
// does not open for another.
//
// Messages that are sealed together have one signature: they are the leaves of a
// Merkle tree (RFC 9162), whose size and root are signed. Each carries its way to the
// root, and opens without the others.
//
// [Verifier.Open] is the only source of [Opened] values. A function that takes
// an Opened therefore cannot be handed bytes that nobody checked. Everything
// here is pure: the caller brings the keys, the clock and, for what only a
// database can decide (replays, revocation at this very moment), the
// transaction.
package signing
