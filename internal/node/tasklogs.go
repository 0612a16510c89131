package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// quietStream is how long nothing is sent to who follows a log; then a comment is.
const quietStream = 15 * time.Second

// logStream is the answer with the output of an agent, as server-sent events.
type logStream struct {
	ctx    context.Context
	hub    *hub.Hub
	task   string
	after  int64
	follow bool
}

// VisitGetTaskLogsResponse implements [api.GetTaskLogsResponseObject].
func (l logStream) VisitGetTaskLogsResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if api.IsHead(l.ctx) { // else it would go on as long as the agent does
		return nil
	}
	e := &events{w: w, c: http.NewResponseController(w)}
	err := e.flush()
	if err == nil {
		err = l.hub.Logs(l.ctx, l.task, l.after, l.follow, hub.Reader{Send: e.line, Flush: e.flush})
	}
	if err == nil {
		err = e.end()
	}
	if err != nil {
		if l.ctx.Err() == nil {
			l.hub.Log.ErrorContext(l.ctx, "sending logs", "id", l.task, "err", err)
		}
		panic(http.ErrAbortHandler) // else its reader would take what is there for all
	}
	return nil
}

// events writes server-sent events.
type events struct {
	w    http.ResponseWriter
	c    *http.ResponseController
	last time.Time // something was sent
}

// line sends a line of a log. The id of a piece is from where a reader goes on.
func (e *events) line(l hub.LogLine) error {
	switch {
	case l.Waiting != nil:
		return e.data("", struct {
			Waiting *hub.Unlinked `json:"waiting"`
		}{l.Waiting})
	case l.Missing != nil:
		return e.data("", struct {
			Missing *hub.Missing `json:"missing"`
		}{l.Missing})
	}
	return e.data(fmt.Sprintf("id: %d\n", l.Seq), l.Piece)
}

func (e *events) data(before string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return e.write("%sdata: %s\n\n", before, raw)
}

// end says that nothing follows.
func (e *events) end() error {
	if err := e.write("event: end\ndata: {}\n\n"); err != nil {
		return err
	}
	return e.c.Flush()
}

func (e *events) write(format string, args ...any) error {
	e.last = time.Now()
	_, err := fmt.Fprintf(e.w, format, args...)
	return err
}

// flush sends what was written, and a comment where that is nothing for too long: it finds
// readers that are gone.
func (e *events) flush() error {
	if time.Since(e.last) > quietStream {
		if err := e.write(": \n\n"); err != nil {
			return err
		}
	}
	return e.c.Flush()
}
