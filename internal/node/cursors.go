package node

import (
	"encoding/base64"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
)

// cursorOf is where a list goes on, the newest first, behind a task: ids grow, so what is created
// meanwhile stands before it.
func cursorOf(id string) string { return base64.RawURLEncoding.EncodeToString([]byte(id)) }

// idOf is the id that a cursor stands behind; "" of none, which is the beginning of a list.
func idOf(cursor string) (string, error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(text) != 0 && (len(text) != 36 || uuid.Validate(string(text)) != nil) {
		return "", commands.Refuse(commands.Validation, "cursor %q is not the next of a list", commands.Clip(cursor))
	}
	return string(text), nil
}
