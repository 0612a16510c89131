package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"
)

// list is where the breaks are, below the root of the checkout.
const list = "scripts/mutants/breaks.yaml"

// A Break is one edit that breaks a promise.
type Break struct {
	Name    string // what no longer holds, as a fragment of a sentence
	File    string // below the root
	Text    string // is in File exactly once
	Instead string // takes its place
	Package string // "./store"
	Test    string // the name of the test that must fail
}

// A verdict is how a break ended.
type verdict string

const (
	caught   verdict = "caught"
	survived verdict = "SURVIVED"
	invalid  verdict = "INVALID" // it does not apply or does not compile, or the test does not run
)

// patience is how long one test may run: one that hangs has noticed, too.
const patience = 5 * time.Minute

func read(path string) ([]Break, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []Break
	if err := yaml.UnmarshalWithOptions(raw, &all, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return all, nil
}

// broken returns the file with the edit.
func (b Break) broken(root string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(root, b.File))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(raw, []byte(b.Text)); n != 1 || b.Text == "" {
		return nil, fmt.Errorf("%s: %w, not %d times:\n%s", b.File, errNotOnce, n, b.Text)
	}
	return bytes.Replace(raw, []byte(b.Text), []byte(b.Instead), 1), nil
}

// try runs the test against the broken code.
func (b Break) try(ctx context.Context, root string) (verdict, string) {
	dir, err := os.MkdirTemp("", "spawnmesh-mutant-")
	if err != nil {
		return invalid, err.Error()
	}
	defer os.RemoveAll(dir)
	overlay, err := b.overlay(root, dir)
	if err != nil {
		return invalid, err.Error()
	}
	// By the environment, so that a test which builds the program builds it broken, too.
	out, err := goTest(ctx, root, "-overlay="+overlay, b.Package, []string{b.Test})
	return judge(out, err == nil), tail(out)
}

// histories is how many the property tests draw: enough to come across what a few may miss.
const histories = "SPAWNMESH_MODEL_CHECKS=100"

// goTest runs tests of a package, each at most as long as our patience, with a flag for everything that they build.
func goTest(ctx context.Context, root, flag, pkg string, tests []string) (string, error) {
	within := patience * time.Duration(len(tests))
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout", within.String(), "-run", "^("+strings.Join(tests, "|")+")$", pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), histories, "SPAWNMESH_LONG=1", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" "+flag))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for us
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// overlay writes the broken file and the list that tells the compiler of it.
func (b Break) overlay(root, dir string) (string, error) {
	text, err := b.broken(root)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, filepath.Base(b.File))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", err
	}
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, b.File): file}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, raw, 0o644)
}

// judge reads what go test said. A break that does not compile shows nothing.
func judge(out string, passed bool) verdict {
	switch {
	case strings.Contains(out, "[no tests to run]"), strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"),
		strings.Contains(out, "building the program under test:"):
		return invalid
	case passed:
		return survived
	case strings.Contains(out, "--- FAIL: "), strings.Contains(out, "panic: "), strings.Contains(out, "fatal error: "):
		return caught
	}
	return invalid
}

// tail is the end of what was said.
func tail(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-30):], "\n    ")
}
