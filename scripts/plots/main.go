// Command plots draws what make bench found, and writes its tables into the page that
// explains them. It reads the results and nothing else, so that no figure is typed by hand.
//
//	plots RESULTS PLOTS PAGE
//
// It is a module of its own, so that the product does not depend on a library for plots.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("say where the results are, where the plots go, and which page has the tables")
	}
	r, err := load(args[0])
	if err != nil {
		return err
	}
	for name, draw := range map[string]func(results) figure{"spawns": spawns, "claims": claims, "peers": peers} {
		if err := draw(r).save(filepath.Join(args[1], name+".svg")); err != nil {
			return fmt.Errorf("drawing %s: %w", name, err)
		}
	}
	return refresh(args[2], r)
}

// load reads all results.
func load(dir string) (r results, err error) {
	for name, into := range map[string]any{
		"spawn": &r.Spawn, "noop": &r.Noop, "bare": &r.Bare, "nex": &r.Nex, "idle": &r.Idle, "follow": &r.Follow, "accept": &r.Accept, "read": &r.Read,
		"claim": &r.Claim, "claim-shipped": &r.Shipped, "curve": &r.Curve, "go": &r.Go,
	} {
		text, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil {
			return r, fmt.Errorf("%w; make bench measures it", err)
		}
		if err := json.Unmarshal(text, into); err != nil {
			return r, fmt.Errorf("reading %s.json: %w", name, err)
		}
	}
	return r, nil
}
