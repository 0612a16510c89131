package node

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spawnmesh/spawnmesh/hub"
)

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
	return stream{l.ctx, l.hub.Log.With("id", l.task), "logs"}.send(w, func(e *sseWriter) error {
		return l.hub.Logs(l.ctx, l.task, l.after, l.follow, hub.Reader{Send: e.line, Flush: e.flush})
	})
}

// line sends a line of a log. The id of a piece is from where a reader goes on.
func (e *sseWriter) line(l hub.LogLine) error {
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
