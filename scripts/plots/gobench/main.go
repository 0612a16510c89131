// Command gobench reads what go test -bench prints and writes the figures as JSON to a file.
// It prints what it reads.
//
//	go test -bench . ./... | gobench FILE
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

// A run is all benchmarks of one run.
type run struct {
	At         time.Time   `json:"at"`
	Machine    string      `json:"machine"`
	Load       float64     `json:"load_average"` // of a minute, when it was started
	Benchmarks []benchmark `json:"benchmarks"`
}

type benchmark struct {
	Package string             `json:"package"`
	Name    string             `json:"name"`
	Values  map[string]float64 `json:"values"` // by unit: sec/op, B/op and others
}

func main() {
	if err := convert(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gobench:", err)
		os.Exit(1)
	}
}

func convert(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("name the file to write")
	}
	r := run{At: time.Now().UTC().Truncate(time.Second), Machine: fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(raw), &r.Load)
	}
	var said bytes.Buffer
	lines := benchfmt.NewReader(io.TeeReader(in, io.MultiWriter(out, &said)), "go test")
	for lines.Scan() {
		result, ok := lines.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		b := benchmark{Package: result.GetConfig("pkg"), Name: strings.TrimSuffix(string(result.Name), fmt.Sprintf("-%d", runtime.GOMAXPROCS(0))), Values: map[string]float64{}}
		for _, v := range result.Values {
			b.Values[v.Unit] = v.Value
		}
		r.Benchmarks = append(r.Benchmarks, b)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading benchmarks: %w", err)
	}
	if len(r.Benchmarks) == 0 || bytes.Contains(said.Bytes(), []byte("\nFAIL")) {
		return errors.New("a benchmark failed, or there was none to read: go test says why, above")
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], append(text, '\n'), 0o644)
}
