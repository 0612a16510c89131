package supervisor

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// readExit returns nil when there is no record. What is there may be the agent's
// work: an ErrSpoilt says that it is none that a shim writes.
func readExit(dir string) (*Exit, error) {
	b, err := attempt.ReadPlain(filepath.Join(dir, attempt.ExitFile), attempt.MaxRecord)
	if err == nil && b == nil {
		return nil, nil
	}
	var e *Exit
	if err == nil {
		e, err = parseExit(b)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the exit record: %w", err)
	}
	return e, nil
}

// parseExit reads a record, of a file or as a shim tells it.
func parseExit(record []byte) (*Exit, error) {
	var e Exit
	if json.Unmarshal(record, &e) != nil {
		return nil, attempt.Spoilt("it is not the JSON of one")
	}
	if err := check(&e); err != nil {
		return nil, err
	}
	return &e, nil
}
