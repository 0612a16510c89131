package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"
)

// now is when a run began.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// machine says where.
func machine() string {
	return fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

// write keeps a result as JSON, if a file is asked for.
func write(file string, r any) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing what was found: %w", err)
	}
	return nil
}
