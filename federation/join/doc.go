// Package join lets an instance that nobody knows yet ask a hub for a
// connection: the token that a person carries from one host to the other, and
// the handshake in which each side proves its keys.
//
// It reads and makes messages and nothing else: who carries them is
// [github.com/spawnmesh/spawnmesh/federation/transport], who stores the
// connection is the caller. Every step is bound to the TLS connection that it
// travels on, so that nobody in between can pass off a step as its own.
package join
