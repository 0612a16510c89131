package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// A request asks a contender's process for something. Requests and replies are
// lines of JSON on its standard input and output, one reply for each request, so
// that a contender may be written in any language.
type request struct {
	Phase string `json:"phase"` // "open" first
	URL   string `json:"url,omitempty"`
	Jobs  int    `json:"jobs,omitempty"`
}

type reply struct {
	About  *about `json:"about,omitempty"`
	Values values `json:"values,omitempty"`
	Error  string `json:"error,omitempty"`
}

// phaseOpen connects and makes the schema.
const phaseOpen = "open"

// contend is a contender's process: it answers requests until they end.
func contend(ctx context.Context, name string, in io.Reader, out io.Writer) error {
	c, err := of(name)
	if err != nil {
		return err
	}
	opened := false
	defer func() {
		if opened {
			c.close()
		}
	}()
	replies := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		var r reply
		if q.Phase == phaseOpen {
			r.About, err = introduce(ctx, c, q.URL)
			opened = err == nil
		} else {
			r.Values, err = measure(ctx, c, q.Phase, q.Jobs)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := replies.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// introduce opens c and returns what it is and what can be measured of it.
func introduce(ctx context.Context, c contender, url string) (*about, error) {
	a, err := c.open(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	a.Phases = append(a.Phases, phaseInsertOne, phaseInsertMany, phaseWorked, phasePickup, phaseBacklog, phasePickupBig)
	if _, ok := c.(puller); ok {
		a.Phases = append(a.Phases, phaseRefill, phaseClaim1, phaseClaim100, phaseClaim500)
	}
	return &a, nil
}
