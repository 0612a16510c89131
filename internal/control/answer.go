package control

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

// How much of an answer is read. What streams has other bounds.
const (
	maxAnswer  = 64 << 20
	maxProblem = 1 << 20
)

// checked returns the answer where it is a success, and as an error why it is none.
func (c *Client) checked(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	if err := ProblemIn(resp); err != nil {
		return nil, err
	}
	return nil, c.Unexpected(resp)
}

// ProblemIn is the problem that an answer is, as the error that it stands for; nil where it is none.
func ProblemIn(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	var p api.Problem
	if err != nil || resp.StatusCode < 400 || json.Unmarshal(text, &p) != nil || p.Code == "" {
		return nil
	}
	return Refused(&p)
}

// Unexpected says that an answer is none of an instance: something else was asked.
func (c *Client) Unexpected(resp *http.Response) error {
	said := resp.Request.Method + " " + resp.Request.URL.Path + " answered " + oneLine(resp.Status)
	if to := resp.Header.Get("Location"); to != "" {
		said += " to " + oneLine(to)
	}
	r := commands.Refuse(commands.Internal, "%s", said)
	if c.remote == nil {
		return r.Hinting("see the log of the instance")
	}
	return r.Hinting("is the --url of the context %s that of a hub, and not of something in front of it?", c.remote.Context)
}

// bounded is the body of an answer of which no more than maxAnswer is read.
type bounded struct {
	io.ReadCloser
	left int64
}

// Read reads what may be read.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, commands.Refuse(commands.Internal, "the answer is larger than %d MiB, and was not read to its end", maxAnswer>>20).Hinting("ask for less, as with --limit; is it a hub that was asked?")
	}
	return n, err
}

// Refused is a problem as the error that it stands for. Its texts are shown to people, and its sender may be anybody.
func Refused(p *api.Problem) error {
	return &commands.Refused{Code: commands.Code(oneLine(p.Code)), Why: oneLine(p.Detail), Hint: oneLine(p.Hint), Run: p.Run, MayBeDone: p.MayBeDone}
}

// oneLine makes one line of a foreign text.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return '·'
		}
		return r
	}, s)
}
