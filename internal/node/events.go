package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/feed"
	"github.com/spawnmesh/spawnmesh/store"
)

// FollowEvents implements [api.StrictServerInterface].
func (s resources) FollowEvents(ctx context.Context, r api.FollowEventsRequestObject) (api.FollowEventsResponseObject, error) {
	since := feed.Now
	if after := cmp.Or(r.Params.LastEventID, r.Params.Since); after != nil { // a reader that goes on asks as it did first
		since = *after
	}
	if since < feed.Now {
		return nil, commands.Refuse(commands.Validation, "since is the number of an event, not %d", since)
	}
	since, err := s.n.feed.Since(ctx, since)
	return eventStream{ctx, s.n, since, r.Params.Follow}, err
}

// eventStream is the answer with events, as server-sent events.
type eventStream struct {
	ctx    context.Context
	n      *Node
	since  int64
	follow bool
}

// VisitFollowEventsResponse implements [api.FollowEventsResponseObject].
func (l eventStream) VisitFollowEventsResponse(w http.ResponseWriter) error {
	return stream{l.ctx, l.n.Log, "events"}.send(w, func(e *sseWriter) error {
		if err := e.numbered(l.since, api.EventLine{Position: &l.since}); err != nil {
			return err
		}
		return l.n.feed.Follow(l.ctx, l.since, l.follow, feed.Reader{
			Event: func(v feed.Told) error { return e.write("%s", l.text(v)) },
			Gap:   func(g feed.Gap) error { return e.numbered(g.To, api.EventLine{Gap: api.EventGap(g)}) },
			Flush: e.flush,
			Quiet: quietStream,
		})
	})
}

// text is an event as who follows may see it: most are encoded once for all.
func (l eventStream) text(v feed.Told) []byte {
	if v.Progress == nil || control.CallerOf(l.ctx).SeesContent() {
		return v.Text
	}
	v.Progress = nil
	return eventText(v.Event)
}

// numbered sends a line after which a reader goes on with the events above seq.
func (e *sseWriter) numbered(seq int64, line api.EventLine) error {
	return e.data(fmt.Sprintf("id: %d\n", seq), line)
}

// eventText is an event as streams have it.
func eventText(v store.Event) []byte {
	raw, _ := json.Marshal(api.EventLine{Event: eventOf(v)}) // it is made of what can be one
	return fmt.Appendf(nil, "id: %d\ndata: %s\n\n", v.Seq, raw)
}

func eventOf(v store.Event) api.Event {
	e := api.Event{Seq: v.Seq, At: v.At.UTC(), Kind: api.EventKind(v.Kind), Task: v.Task, Connection: v.Conn, State: v.State, Reason: v.Reason, Attempt: v.Attempt, Accepted: v.Accepted, Progress: progressOf(v.Progress, v.Attempt)}
	if v.Task != "" {
		e.ShortID = commands.ShortID(v.Task)
	}
	switch v.Role {
	case store.Commands:
		e.Spoke = v.Name
	case store.Obeys:
		e.Hub = v.Name
	}
	return e
}
