// Package signing seals messages with Ed25519 keys and opens them again.
//
// A message is an envelope: a signed header and the body that the header names
// by length and digest. The bytes that were signed are the bytes that travel;
// opening decodes them once, encodes the result again and refuses anything
// that does not come out the same, so no two readers can disagree about what a
// signature covers. The message type is part of what is signed (DSSE's
// pre-authentication encoding), so a message made for one purpose does not open
// for another.
//
// [Verifier.Open] is the only source of [Opened] values. A function that takes
// an Opened therefore cannot be handed bytes that nobody checked. Everything
// here is pure: the caller brings the keys, the clock and, for what only a
// database can decide (replays, revocation at this very moment), the
// transaction.
package signing
