// Package crash names the steps between two durable actions, where tests end a
// process to see what a restart makes of it. Without the build tag crashpoints
// it does nothing.
//
// Its tests are those of cmd/spawnmesh, which end processes at its steps.
package crash
