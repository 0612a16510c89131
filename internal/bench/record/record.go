// Package record keeps what was measured, with when and where. The modules of the peers share it: it knows the
// standard library alone.
//
// No test runs it: make bench does.
package record

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"
)

// An Origin says when and where something was measured.
type Origin struct {
	At      time.Time `json:"at"`
	Machine string    `json:"machine"`
	Load    float64   `json:"load_average"` // of a minute, when it began: what else the machine did
}

// Here is this machine, now.
func Here() Origin {
	o := Origin{At: time.Now().UTC().Truncate(time.Second), Machine: fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(raw), &o.Load)
	}
	return o
}

// Write keeps a result as JSON, if a file is asked for.
func Write(file string, result any) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return fmt.Errorf("writing what was found: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing what was found: %w", err)
	}
	return nil
}
