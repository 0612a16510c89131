package door

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An Attempt is what an agent is told of itself.
type Attempt struct {
	Task     string     `json:"task"`
	ShortID  string     `json:"short_id"`
	Attempt  int        `json:"attempt"`
	Deadline *time.Time `json:"deadline,omitempty"` // when it is ended at the latest
	// Questions are all that the agent has asked, in earlier attempts, too, with their answers.
	Questions []backlog.Question `json:"questions"`
}

// Noted is the answer to what an agent says.
type Noted struct {
	At time.Time `json:"at"` // by the clock of the spoke's database
}

func (d *Door) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/attempt", d.inTurn(reply(d.show)))
	mux.HandleFunc("POST /v1/heartbeat", taking(d.heartbeat))
	mux.HandleFunc("POST /v1/progress", taking(d.progress))
	mux.HandleFunc("PUT /v1/checkpoint", d.inTurn(d.checkpoint))
	mux.HandleFunc("PUT /v1/session", taking(d.session))
	mux.HandleFunc("POST /v1/questions", taking(d.ask))
	mux.HandleFunc("GET /v1/questions/{question}", reply(d.await))
	mux.HandleFunc("DELETE /v1/questions/{question}", reply(d.withdraw))
	mux.HandleFunc("POST /v1/messages", taking(d.send))
	mux.HandleFunc("POST /v1/messages/poll", taking(d.poll))
	mux.HandleFunc("POST /v1/messages/ack", taking(d.ack))
	mux.HandleFunc("POST /v1/done", taking(d.done))
	mux.HandleFunc("POST /v1/fail", taking(d.fail))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, nil, commands.Refuse(commands.NotFound, "there is no %s %s at the door of an agent", r.Method, commands.Clip(r.URL.Path)).
			Hinting("docs/operating.md lists what there is"))
	})
	return mux
}

// answer writes an answer, which the agent has so long to read.
func answer(w http.ResponseWriter, r *http.Request, out any, err error) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	control.Reply(w, r, out, err)
}

// inTurn lets few requests in at a time, each until its answer is read.
func (d *Door) inTurn(act http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		leave := d.takeTurn(r.Context())
		if leave == nil {
			panic(http.ErrAbortHandler) // to return would be to answer that it is done
		}
		defer leave()
		act(w, r)
	}
}

// takeTurn waits for a turn, and returns what ends it; nil where ctx has ended first.
func (d *Door) takeTurn(ctx context.Context) (leave func()) {
	select {
	case d.heavy <- struct{}{}:
		return func() { <-d.heavy }
	case <-ctx.Done():
		return nil
	}
}

// reply answers with what act returns.
func reply[Out any](act func(r *http.Request) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := act(r)
		answer(w, r, out, err)
	}
}

// taking is reply for an act that takes a body.
func taking[In, Out any](act func(r *http.Request, in In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		raw, err := readBody(w, r, maxBody)
		if err == nil {
			err = decode(raw, &in)
		}
		var out Out
		if err == nil {
			out, err = act(r, in)
		}
		answer(w, r, out, err)
	}
}

// readBody reads a whole body of up to so many bytes.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	b := bodyOf(w, r, most)
	defer b.end()
	raw, err := io.ReadAll(b)
	if err != nil && b.wrong(err) == nil {
		return nil, commands.Refuse(commands.Validation, "the body cannot be read")
	}
	return raw, b.wrong(err)
}

// A body has its bound, and so long to arrive.
type body struct {
	io.Reader
	to   *http.ResponseController
	most int64
}

func bodyOf(w http.ResponseWriter, r *http.Request, most int64) *body {
	b := &body{Reader: http.MaxBytesReader(w, r.Body, most), to: http.NewResponseController(w), most: most}
	_ = b.to.SetReadDeadline(time.Now().Add(bodyTime))
	return b
}

func (b *body) end() { _ = b.to.SetReadDeadline(time.Time{}) }

// wrong says what an error of reading b means; nil where it is none of a body.
func (b *body) wrong(err error) error {
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		return commands.Refuse(commands.PayloadTooLarge, "the body is larger than %d bytes", b.most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return commands.Refuse(commands.RequestTimeout, "the body did not come to its end within %s", bodyTime)
	}
	return nil
}

// decode reads one JSON value with the fields of out and no other.
func decode(raw []byte, out any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	err := dec.Decode(out)
	if err == io.EOF { // an empty body says nothing
		return nil
	}
	if err == nil {
		if _, behind := dec.Token(); behind != io.EOF {
			err = errors.New("there is more behind the body")
		}
	}
	if err != nil {
		return commands.Refuse(commands.Validation, "the request cannot be read: %s", commands.Clip(fmt.Sprint(err)))
	}
	return nil
}
