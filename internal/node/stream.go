package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/spawnmesh/spawnmesh/hub/api"
)

// quietStream is how long nothing is sent to who follows; then a comment is.
const quietStream = 15 * time.Second

// A stream is an answer of server-sent events, which says when it is whole.
type stream struct {
	ctx context.Context
	log *slog.Logger
	of  string // what
}

// send has each send all that there is. An answer that each did not bring to its end is cut off: its reader would take
// what is there for all.
func (s stream) send(w http.ResponseWriter, each func(*sseWriter) error) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if api.IsHead(s.ctx) { // else it would go on for as long as there is something to follow
		return nil
	}
	e := &sseWriter{w: w, c: http.NewResponseController(w)}
	err := e.flush()
	if err == nil {
		err = each(e)
	}
	if err == nil {
		err = e.end()
	}
	if err != nil {
		if s.ctx.Err() == nil {
			s.log.ErrorContext(s.ctx, "sending a stream", "of", s.of, "err", err)
		}
		panic(http.ErrAbortHandler)
	}
	return nil
}

// An sseWriter writes server-sent events.
type sseWriter struct {
	w    http.ResponseWriter
	c    *http.ResponseController
	last time.Time // something was sent
}

func (e *sseWriter) data(before string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return e.write("%sdata: %s\n\n", before, raw)
}

// end says that nothing follows.
func (e *sseWriter) end() error {
	if err := e.write("event: end\ndata: {}\n\n"); err != nil {
		return err
	}
	return e.c.Flush()
}

func (e *sseWriter) write(format string, args ...any) error {
	e.last = time.Now()
	_, err := fmt.Fprintf(e.w, format, args...)
	return err
}

// flush sends what was written, and a comment where that is nothing for too long: it finds
// readers that are gone.
func (e *sseWriter) flush() error {
	if time.Since(e.last) > quietStream {
		if err := e.write(": \n\n"); err != nil {
			return err
		}
	}
	return e.c.Flush()
}
