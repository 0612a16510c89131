package door

import (
	"bytes"
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
	mux.HandleFunc("GET /v1/attempt", reply(d.show))
	mux.HandleFunc("POST /v1/heartbeat", taking(d.heartbeat))
	mux.HandleFunc("POST /v1/progress", taking(d.progress))
	mux.HandleFunc("PUT /v1/checkpoint", d.checkpoint)
	mux.HandleFunc("PUT /v1/session", taking(d.session))
	mux.HandleFunc("POST /v1/questions", taking(d.ask))
	mux.HandleFunc("GET /v1/questions/{question}", reply(d.await))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		control.Error(w, commands.Refuse(commands.NotFound, "there is no %s %s at the door of an agent", r.Method, commands.Clip(r.URL.Path)).
			Hinting("docs/operating.md lists what there is"))
	})
	return mux
}

// reply answers with what act returns.
func reply[Out any](act func(r *http.Request) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := act(r)
		control.Reply(w, out, err)
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
		control.Reply(w, out, err)
	}
}

// readBody reads a whole body, of which there may be so much, and which has so long to arrive.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	to := http.NewResponseController(w)
	_ = to.SetReadDeadline(time.Now().Add(bodyTime))
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	_ = to.SetReadDeadline(time.Time{})
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		return nil, commands.Refuse(commands.PayloadTooLarge, "the body is larger than %d bytes", most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, commands.Refuse(commands.RequestTimeout, "the body did not come to its end within %s", bodyTime)
	case err != nil:
		return nil, commands.Refuse(commands.Validation, "the body cannot be read")
	}
	return raw, nil
}

// decode reads one JSON value with the fields of out and no other.
func decode(raw []byte, out any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	err := dec.Decode(out)
	if err == io.EOF { // an empty body says nothing
		return nil
	}
	if err == nil && dec.More() {
		err = errors.New("there is more behind the body")
	}
	if err != nil {
		return commands.Refuse(commands.Validation, "the request cannot be read: %s", commands.Clip(fmt.Sprint(err)))
	}
	return nil
}
