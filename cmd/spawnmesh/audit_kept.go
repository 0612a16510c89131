package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"strings"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/signing"
)

// A keptCheckpoint is what somebody else has kept of an audit: the file that was named, and the note in it.
type keptCheckpoint struct{ file, note string }

// keptIn reads checkpoints: notes as they are, or what audit checkpoints shows as JSON.
func (a *app) keptIn(ctx context.Context, files []string) (list []keptCheckpoint, err error) {
	for _, name := range files {
		text, err := a.readNamed(ctx, source{what: "--checkpoint", path: name, most: 1 << 20})
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(strings.TrimSpace(text), "[") && !strings.HasPrefix(strings.TrimSpace(text), "{") {
			list = append(list, keptCheckpoint{name, text})
			continue
		}
		var shown []api.PeerCheckpoint
		if err := json.Unmarshal([]byte(text), &shown); err != nil || len(shown) == 0 || shown[0].Checkpoint.Note == "" {
			return nil, misuse("%s has no checkpoint: it is a note, or what audit checkpoints --peer NAME -o json shows", name)
		}
		list = append(list, keptCheckpoint{name, shown[0].Checkpoint.Note})
	}
	return list, nil
}

// check refuses a file that says nothing of the audit of the instance whose identity key is public: that is no word on the audit.
func (k keptCheckpoint) check(public ed25519.PublicKey) error {
	if _, err := audittree.Open(k.note, public); err != nil {
		return misuse("%s is no checkpoint of this instance, %s", k.file, signing.InstanceIDOf(public)).
			Hinting("name the file with what its peer shows: audit checkpoints --peer NAME -o json, there")
	}
	return nil
}
