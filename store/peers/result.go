package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"
)

// An origin says when and where something was measured.
type origin struct {
	At      time.Time `json:"at"`
	Machine string    `json:"machine"`
	Load    float64   `json:"load_average"` // of a minute, when it began: what else the machine did
}

// here is this machine, now.
func here() origin {
	o := origin{At: time.Now().UTC().Truncate(time.Second), Machine: fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(raw), &o.Load)
	}
	return o
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
