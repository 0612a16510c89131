package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// graphileDir holds the program that is graphile-worker, relative to the
// directory of this module, where this program is run.
const graphileDir = "graphile"

var errNode = errors.New("graphile-worker needs node and npm: install Node.js 20 or newer, or leave it out with -without graphile")

// install fetches graphile-worker as its lock file says, unless it is there.
func install(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(graphileDir, "package-lock.json")); err != nil {
		return fmt.Errorf("there is no %s here: run this program in store/peers, or leave graphile-worker out with -without graphile", graphileDir)
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return errNode
		}
	}
	if _, err := os.Stat(filepath.Join(graphileDir, "node_modules", "graphile-worker")); err == nil {
		return nil
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir, npm.Stdout, npm.Stderr = graphileDir, os.Stderr, os.Stderr
	if err := npm.Run(); err != nil {
		return fmt.Errorf("installing graphile-worker with npm ci: %w; leave it out with -without graphile", err)
	}
	return nil
}
