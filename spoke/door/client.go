package door

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/shortpath"
)

// DefaultPatience is how long a client asks again while its spoke is away.
const DefaultPatience = time.Minute

// A Client asks the spoke of an agent, from inside of it. While the spoke is away, as while it is restarted, it asks
// again. What is asked for may have been done before, so only that is asked which changes nothing more when it is
// asked twice.
type Client struct {
	Socket    string        // path of the socket
	TokenFile string        // read with each request: the spoke may have made another one
	Patience  time.Duration // how long it asks again
}

// Do asks method path with in (nil for none), and reads the answer into out (nil to drop it).
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the request %s %s: %w", method, path, err)
		}
		body = raw
	}
	return c.Send(ctx, method, path, body, out)
}

// Send is Do with a body as it is.
func (c *Client) Send(ctx context.Context, method, path string, body []byte, out any) error {
	until := time.Now().Add(c.Patience)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := c.once(ctx, method, path, body, out)
		if !again(err) || ctx.Err() != nil {
			return err
		}
		if time.Now().Add(pause).After(until) {
			return c.away(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// again reports whether an error may pass by itself.
func again(err error) bool {
	switch commands.CodeOf(err) {
	case commands.StoreDown, commands.TooManyRequests:
		return true
	}
	_, unsent := errors.AsType[*url.Error](err)
	return unsent || errors.Is(err, io.ErrUnexpectedEOF)
}

// away says that the spoke was not to be reached for as long as there is patience.
func (c *Client) away(err error) error {
	if _, said := errors.AsType[*commands.Refused](err); said {
		return err
	}
	return &commands.Refused{Code: commands.Unreachable, Why: fmt.Sprintf("the spoke of this agent did not answer at %s for %s", c.Socket, commands.Lasting(c.Patience)), Err: errors.Unwrap(err),
		Hint: "it may be stopped: the agent goes on until its lease ends; ask again later, or wait longer with --patience"}
}

func (c *Client) once(ctx context.Context, method, path string, body []byte, out any) error {
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return &commands.Refused{Code: commands.Unauthenticated, Why: "the token of this attempt cannot be read", Err: err, Hint: "SPAWNMESH_TOKEN_FILE names its file"}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://spoke"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DialContext: c.dial}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		if err := control.ProblemIn(resp); err != nil {
			return err
		}
		return commands.Refuse(commands.Internal, "%s %s answered %s", method, path, resp.Status).Hinting("is %s the socket of a spoke?", c.Socket)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	name, done, err := shortpath.Of(c.Socket)
	if err != nil {
		return nil, err
	}
	defer done()
	return new(net.Dialer).DialContext(ctx, "unix", name)
}
