package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

// speaker refuses what the caller may not speak or read as. A worker is itself alone, and nobody else is one.
func speaker(ctx context.Context, name string) error {
	who := control.CallerOf(ctx)
	if who.NeedsFence() && name != who.String() {
		return commands.Refuse(commands.Forbidden, "a worker speaks and reads as itself alone").Hinting("this one is %s", who)
	}
	return messages.CheckName(name, who.String())
}

// SendMessage implements [api.StrictServerInterface].
func (s resources) SendMessage(ctx context.Context, r api.SendMessageRequestObject) (api.SendMessageResponseObject, error) {
	b, who := r.Body, control.CallerOf(ctx).String()
	if err := backlog.CheckWorkspace(r.Workspace); err != nil {
		return nil, err
	}
	m := messages.Message{Workspace: r.Workspace, ID: b.ID, From: cmp.Or(b.From, who), To: b.To, Type: b.Type, Correlation: b.CorrelationID, InReplyTo: b.InReplyTo,
		Payload: string(b.Payload), Blob: b.PayloadRef, By: who}
	if err := speaker(ctx, m.From); err != nil {
		return nil, err
	}
	m, known, err := s.log.Publish(ctx, m)
	v := noteOf(m)
	v.Known = known
	return api.SendMessage200JSONResponse{OneMessageJSONResponse: api.OneMessageJSONResponse(v)}, err
}

// ListMessages implements [api.StrictServerInterface].
func (s resources) ListMessages(ctx context.Context, r api.ListMessagesRequestObject) (api.ListMessagesResponseObject, error) {
	p := r.Params
	t := messages.Terms{From: p.From, To: p.To, Type: p.Type, Correlation: p.CorrelationID, Words: p.Grep}
	var err error
	if t.Limit, err = limitOf(p.Limit, usualCards, mostCards); err != nil {
		return nil, err
	}
	if t.Beyond, err = seqOf(p.Cursor); err != nil {
		return nil, err
	}
	var page api.MessageList
	if p.After != nil {
		t.Rising, t.Beyond = true, max(t.Beyond, *p.After)
		if page.RemovedTo, err = s.log.PrunedTo(ctx, r.Workspace); err != nil {
			return nil, err
		}
	}
	list, err := s.log.List(ctx, r.Workspace, t)
	if err != nil {
		return nil, err
	}
	full := len(list) == t.Limit
	if p.Resolve {
		fits := messages.Fitting(list)
		list, full = list[:fits], full || fits < len(list)
	}
	page.Items = mapped(list, noteOf)
	if p.Resolve {
		s.resolve(page.Items)
	}
	if full {
		page.Next = cursorOf(strconv.FormatInt(list[len(list)-1].Seq, 10))
	}
	return api.ListMessages200JSONResponse(page), nil
}

// GetMessage implements [api.StrictServerInterface].
func (s resources) GetMessage(ctx context.Context, r api.GetMessageRequestObject) (api.GetMessageResponseObject, error) {
	m, err := s.log.Show(ctx, r.Workspace, r.Message)
	if err != nil {
		return nil, err
	}
	list := []api.Message{noteOf(m)}
	s.resolve(list)
	return api.GetMessage200JSONResponse{OneMessageJSONResponse: api.OneMessageJSONResponse(list[0])}, nil
}

// PollMessages implements [api.StrictServerInterface]. Who waits is answered with nothing when the database is about to stop.
func (s resources) PollMessages(ctx context.Context, r api.PollMessagesRequestObject) (api.PollMessagesResponseObject, error) {
	if err := cmp.Or(backlog.CheckWorkspace(r.Workspace), speaker(ctx, r.Reader)); err != nil {
		return nil, err
	}
	wait, err := waitOf(r.Params.Wait)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(r.Params.Limit, 100, 100)
	if err != nil {
		return nil, err
	}
	p, err := s.log.Poll(ctx, r.Workspace, r.Reader, limit, time.Now().Add(wait))
	if err != nil && wait > 0 && (s.n.Instance.Gone(err) || ctx.Err() != nil) {
		err = nil
	}
	page := api.MessagePage{Items: mapped(p.Messages, noteOf), Acked: p.Acked, DroppedAt: when(p.DroppedAt)}
	s.resolve(page.Items)
	return api.PollMessages200JSONResponse(page), err
}

// AckMessages implements [api.StrictServerInterface].
func (s resources) AckMessages(ctx context.Context, r api.AckMessagesRequestObject) (api.AckMessagesResponseObject, error) {
	if err := speaker(ctx, r.Reader); err != nil {
		return nil, err
	}
	var v messages.Reader
	var err error
	if r.Body.Failed != "" {
		v, err = s.log.Fail(ctx, r.Workspace, r.Reader, r.Body.Seq, r.Body.Failed)
	} else {
		v, err = s.log.Ack(ctx, r.Workspace, r.Reader, r.Body.Seq)
	}
	return api.AckMessages200JSONResponse{OneReaderJSONResponse: api.OneReaderJSONResponse(readerOf(v))}, err
}

// ListReaders implements [api.StrictServerInterface].
func (s resources) ListReaders(ctx context.Context, r api.ListReadersRequestObject) (api.ListReadersResponseObject, error) {
	list, err := s.log.Readers(ctx, r.Workspace)
	return api.ListReaders200JSONResponse{Items: mapped(list, readerOf)}, err
}

// DropReader implements [api.StrictServerInterface].
func (s resources) DropReader(ctx context.Context, r api.DropReaderRequestObject) (api.DropReaderResponseObject, error) {
	err := s.log.DropReader(ctx, r.Workspace, r.Reader, control.CallerOf(ctx).String())
	return api.DropReader200JSONResponse{RemovedJSONResponse: api.RemovedJSONResponse{Removed: r.Reader}}, err
}

// ListDeadLetters implements [api.StrictServerInterface].
func (s resources) ListDeadLetters(ctx context.Context, r api.ListDeadLettersRequestObject) (api.ListDeadLettersResponseObject, error) {
	limit, err := limitOf(r.Params.Limit, usualCards, mostCards)
	if err != nil {
		return nil, err
	}
	list, err := s.log.Dead(ctx, r.Workspace, r.Params.Reader, limit)
	return api.ListDeadLetters200JSONResponse{Items: mapped(list, func(d messages.DeadLetter) api.DeadLetter {
		return api.DeadLetter{Reader: d.Reader, Tries: d.Tries, Why: d.Why, At: d.Died, Retry: d.Retry, Message: noteOf(d.Message)}
	})}, err
}

// RetryDeadLetter implements [api.StrictServerInterface].
func (s resources) RetryDeadLetter(ctx context.Context, r api.RetryDeadLetterRequestObject) (api.RetryDeadLetterResponseObject, error) {
	v, err := s.log.RetryDead(ctx, r.Workspace, r.Reader, r.Seq, control.CallerOf(ctx).String())
	return api.RetryDeadLetter200JSONResponse{OneReaderJSONResponse: api.OneReaderJSONResponse(readerOf(v))}, err
}

// DropDeadLetter implements [api.StrictServerInterface].
func (s resources) DropDeadLetter(ctx context.Context, r api.DropDeadLetterRequestObject) (api.DropDeadLetterResponseObject, error) {
	err := s.log.DropDead(ctx, r.Workspace, r.Reader, r.Seq, control.CallerOf(ctx).String())
	return api.DropDeadLetter200JSONResponse{RemovedJSONResponse: api.RemovedJSONResponse{Removed: strconv.FormatInt(r.Seq, 10)}}, err
}

// resolve puts what blobs have into their messages, or says why it does not. An instance that keeps no blobs leaves them.
func (s resources) resolve(list []api.Message) {
	if s.n.Hub == nil {
		return
	}
	for i := range list {
		if m := &list[i]; m.PayloadRef != "" {
			m.Payload, m.PayloadError = bytesOf(s.n.Hub.Blobs(), m.PayloadRef)
		}
	}
}

// bytesOf returns what a blob has where that is JSON and not too large, or else what is wrong with it.
func bytesOf(blobs *blob.Store, digest string) ([]byte, api.MessagePayloadError) {
	d, err := blob.Parse(digest)
	if err != nil {
		return nil, api.DecodeFailed
	}
	r, err := blobs.Open(d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, api.BlobMissing
	}
	if err != nil {
		return nil, api.DecodeFailed
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, messages.MostOfBlob+1))
	switch {
	case len(text) > messages.MostOfBlob:
		return nil, api.BlobLarge
	case err != nil || !json.Valid(text): // the reader compares the digest
		return nil, api.DecodeFailed
	}
	return text, ""
}

func noteOf(m messages.Message) api.Message {
	v := api.Message{Seq: m.Seq, ID: m.ID, At: m.At, From: m.From, To: m.To, Type: m.Type, CorrelationID: m.Correlation, InReplyTo: m.InReplyTo,
		PayloadRef: m.Blob, SaidBy: m.By, Again: m.Again}
	if m.Payload != "" {
		v.Payload = api.JSON(m.Payload)
	}
	return v
}

func readerOf(r messages.Reader) api.Reader {
	return api.Reader{Name: r.Name, Acked: r.Acked, Delivered: r.Delivered, Head: r.Head, Tries: r.Tries, DeadLetters: r.Dead, SeenAt: r.Seen, DroppedAt: when(r.DroppedAt)}
}
