package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/tracing"
)

// API is the generated client of the instance. What it returns is for [Answer].
func (c *Client) API() *api.ClientWithResponses {
	return &api.ClientWithResponses{ClientInterface: &api.Client{Server: c.url + api.Base + "/", Client: checker{doer{c}}}}
}

// doer sends requests of an operator and says what it means where there is no answer.
type doer struct{ c *Client }

func (d doer) Do(req *http.Request) (*http.Response, error) {
	if d.c.Trace != "" {
		req.Header.Set(tracing.Header, d.c.Trace)
	}
	sent := false
	resp, err := d.c.await(noting(&sent, req))
	if err != nil && req.Method != http.MethodGet && errors.Is(req.Context().Err(), context.Canceled) {
		may := commands.Refuse(Interrupted, "interrupted before %s answered; "+mayBeDone, d.c.where).Hinting("%s", lookFirst)
		may.MayBeDone = true
		return nil, may
	}
	if err != nil && sent && req.Method != http.MethodGet {
		return nil, unanswered(d.c.unreachable(err))
	}
	if err != nil {
		return nil, d.c.unreachable(err)
	}
	return resp, nil
}

// noting returns req, which sets sent while it has a connection: from then on it may arrive.
func noting(sent *bool, req *http.Request) *http.Request {
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { *sent = false }, // again, where one that was kept was closed meanwhile
		GotConn: func(httptrace.GotConnInfo) { *sent = true },
	}))
}

// lookFirst is the next step of who asked for something, and was not answered.
const lookFirst = "look once it answers; type the line again if nothing was done"

// unanswered adds to said, which says why there is no answer to what was sent, that what was asked may have been done.
func unanswered(said error) error {
	refused, ok := errors.AsType[*commands.Refused](said)
	if !ok || refused.Code != commands.Unreachable {
		return said
	}
	return &commands.Refused{Code: refused.Code, Why: said.Error() + "; " + mayBeDone, Hint: strings.TrimSpace(refused.Hint + " " + lookFirst), MayBeDone: true}
}

// checker is a doer whose answers are successes, and end.
type checker struct{ doer }

func (d checker) Do(req *http.Request) (*http.Response, error) {
	resp, err := d.doer.Do(req)
	if err != nil {
		return nil, err
	}
	if resp, err = d.c.checked(resp); err != nil {
		return nil, err
	}
	resp.Body = &bounded{resp.Body, maxAnswer}
	return resp, nil
}

// An answer is what the generated client returns: a T with status 200.
type answer[T any] interface {
	GetJSON200() *T
	Status() string
}

// Answer returns what was asked for, or as a [*commands.Refused] why there is none.
func Answer[T any, R answer[T]](r R, err error) (T, error) {
	var none T
	if err != nil {
		return none, cutOff(err)
	}
	if v := r.GetJSON200(); v != nil {
		return *v, nil
	}
	return none, fmt.Errorf("the instance answered %s", r.Status())
}

// Read returns what was asked for as the type that a screen shows, which may have more, or other, names for it than the
// generated one. It takes what a request of [Client.API] returns.
func Read[T any](resp *http.Response, err error) (v T, _ error) {
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&v)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if _, other := errors.AsType[*json.SyntaxError](err); other {
		return v, fmt.Errorf("reading the answer of %s %s: %w", resp.Request.Method, resp.Request.URL.Path, err)
	}
	return v, cutOff(err)
}

// cutOff says what it means that an answer began and did not end.
func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &commands.Refused{Code: commands.Unreachable, Why: "the instance stopped while it answered", Err: err, Hint: "look once it runs again; what was asked may have been done", MayBeDone: true}
	}
	return err
}
