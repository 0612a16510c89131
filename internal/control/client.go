package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tmaxmax/go-sse"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/shortpath"
)

// A Client asks an instance: the one in a data directory, or one on another machine.
type Client struct {
	url    string
	where  string  // it is, in words
	dir    string  // "" of a remote one
	remote *Remote // nil of one in a directory
	http   *http.Client
	// Trace is what the requests belong to, see [tracing.Header]; "" = nothing.
	Trace string
	// Hung is told once that the instance leaves a request without an answer and does not say that it is alive; nil = nobody is.
	Hung func(since time.Duration)
	told sync.Once // of Hung
}

// local is a client of the instance in dir.
func local(dir string, by http.RoundTripper) *Client {
	return &Client{url: "http://instance", where: "the instance in " + dir, dir: dir, http: &http.Client{Transport: by}}
}

// NewClient returns a client of the instance in dir. It connects when asked.
func NewClient(dir string) *Client { return local(dir, Transport(dir)) }

// Runs reports whether an instance serves dir.
func Runs(ctx context.Context, dir string) bool {
	conn, err := dial(ctx, Socket(dir))
	if err != nil {
		return !notRunning(err)
	}
	_ = conn.Close() // nothing was said
	return true
}

func dial(ctx context.Context, path string) (net.Conn, error) {
	name, done, err := shortpath.Of(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return new(net.Dialer).DialContext(ctx, "unix", name)
}

func notRunning(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Do asks method path with body in (nil for none) and reads the answer into out
// (nil to drop it). A problem comes back as [*commands.Refused]; an instance
// that does not run is [commands.Unreachable]. Commands ask by [Client.API] instead.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := &bounded{resp.Body, maxAnswer}
	if out == nil {
		_, err = io.Copy(io.Discard, body)
		return err
	}
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return c.broken(method, path, err)
	}
	return nil
}

// Items is what lists are answered with.
type Items[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"` // the cursor of what comes after these; "" = there is no more
}

// Follow is [Client.Stream] of the answer to GET path, as [Client.Do] asks.
func (c *Client) Follow(ctx context.Context, path string, each func(json.RawMessage) error) error {
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	return c.Stream(resp, err, each)
}

// Stream hands the data of each server-sent event of an answer to each, until the event end or each returns an error. An
// answer that ends without it was cut off. It takes what a request of [Client.API] returns.
func (c *Client) Stream(resp *http.Response, err error, each func(json.RawMessage) error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := endless(resp) // each event is bounded, and there may be any number of them
	path := resp.Request.URL.Path
	for e, err := range sse.Read(body, &sse.ReadConfig{MaxEventSize: maxEvent}) {
		switch {
		case err != nil:
			return c.broken(http.MethodGet, path, err)
		case e.Type == "end":
			return nil
		}
		if err := each(json.RawMessage(e.Data)); err != nil {
			return err
		}
	}
	return c.broken(http.MethodGet, path, io.ErrUnexpectedEOF)
}

// Content returns the bytes of an answer of any length, which are closed by who reads them. It takes what a request of [Client.API] returns.
func (c *Client) Content(resp *http.Response, err error) (io.ReadCloser, error) {
	if err != nil {
		return nil, err
	}
	return endless(resp), nil
}

// endless is the body of an answer without its bound.
func endless(resp *http.Response) io.ReadCloser {
	if b, ok := resp.Body.(*bounded); ok {
		return b.ReadCloser
	}
	return resp.Body
}

// maxEvent bounds a server-sent event: a piece of output in base64.
const maxEvent = 1 << 20

// Send asks method path with a body of JSON (nil for none), and returns whatever is answered.
func (c *Client) Send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, &commands.Refused{Code: commands.Validation, Why: "this is no request: " + method + " " + commands.Clip(path), Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	return doer{c}.Do(req)
}

func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encoding the request %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(raw)
	}
	resp, err := c.Send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	return c.checked(resp)
}

// broken is an answer that began and did not end: the instance stopped, or sent
// something else.
func (c *Client) broken(method, path string, err error) error {
	if _, said := errors.AsType[*commands.Refused](err); said {
		return err
	}
	if _, other := errors.AsType[*json.SyntaxError](err); other {
		return fmt.Errorf("reading the answer of %s %s: %w", method, path, err)
	}
	return c.unreachable(err)
}

func (c *Client) unreachable(err error) error {
	if c.remote != nil {
		return c.remote.unreachable(c.where, err)
	}
	if said, ok := errors.AsType[*commands.Refused](err); ok { // there is no key to ask with
		return said
	}
	if notRunning(err) {
		return c.idle()
	}
	if _, hidden := os.Stat(Socket(c.dir)); hidden != nil && errors.Is(err, os.ErrPermission) {
		return commands.Refuse(commands.Forbidden, "user %d may not look into %s", os.Geteuid(), c.dir).Hinting("run this as its owner, or name another --data-dir")
	}
	if errors.Is(err, os.ErrPermission) {
		return commands.Refuse(commands.Forbidden, "%s belongs to another user", c.where).Hinting("run this as that user")
	}
	return &commands.Refused{Code: commands.Unreachable, Why: c.where + " does not answer", Err: err}
}

// starting returns the process that has the data directory for longer than one
// command, 0 when none has: it wrote its name into the lock, and takes it out when
// it lets go.
func starting(dir string) (pid int) {
	note, err := os.ReadFile(filepath.Join(dir, "instance.lock"))
	if err != nil || strings.HasSuffix(strings.TrimSpace(string(note)), " briefly") {
		return 0
	}
	if _, err := fmt.Sscanf(string(note), "pid %d ", &pid); err != nil || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return 0
	}
	return pid
}

// idle says that nothing serves the data directory, and what could.
func (c *Client) idle() error {
	if pid := starting(c.dir); pid != 0 {
		return commands.Refuse(commands.Unreachable, "the instance in %s (process %d) does not serve yet, or no more", c.dir, pid).
			Hinting("it is starting or stopping: try again in a moment; if it stays so, see what that process says")
	}
	return NotRunning(c.dir, "")
}

// NotRunning refuses what needs an instance that runs in dir, with the command that starts it; more goes on with the sentence.
func NotRunning(dir, more string) error {
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	r := commands.Refuse(commands.Unreachable, "no instance runs in %s%s", dir, more)
	switch {
	case there("nats"): // only a hub has one
		return r.Hinting("start it").Running("hub", "run")
	case there("keys"):
		return r.Hinting("start it, as a hub with hub run, as a spoke with").Running("spoke", "run")
	}
	return r.Hinting("there is none yet: name another --data-dir, or begin with").Running("hub", "run")
}
