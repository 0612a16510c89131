package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// mostBody is how much of a file is read for a request; an instance takes less.
const mostBody = 1 << 20

func (a *app) apiCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "api METHOD PATH", Short: "Send any request to an instance, and print its answer", Args: cobra.ExactArgs(2),
		Long: `Send any request to the running instance, or with the token of a context, and print
the body of its answer as it comes. PATH is one of the description of the API, which
is /openapi.json, with its parameters, with or without /api/v1. The exit code is that
of the code of a problem.`,
		Example: `  spawnmesh api GET '/tasks?open=true'
  spawnmesh api POST /tasks -f order.json
  echo '{"reason":"test"}' | spawnmesh api POST /tasks/k7f3m2qp/kill -f -`,
		RunE: func(c *cobra.Command, args []string) error {
			body, err := a.bodyOf(c.Context(), file)
			if err != nil {
				return err
			}
			return a.api(c.Context(), strings.ToUpper(args[0]), args[1], body)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "send the JSON in `FILE` as the body; - is standard input")
	return c
}

// bodyOf reads what is to be sent; nil for nothing.
func (a *app) bodyOf(ctx context.Context, file string) (io.Reader, error) {
	if file == "" {
		return nil, nil
	}
	text, err := a.readNamed(ctx, source{what: "--file", path: file, input: file == "-", most: mostBody})
	if err != nil {
		return nil, err
	}
	return strings.NewReader(text), nil
}

func (a *app) api(ctx context.Context, method, path string, body io.Reader) error {
	if !strings.HasPrefix(path, "/") {
		return misuse("the path %q does not begin with /", commands.Clip(path)).Hinting("as in: spawnmesh api GET /tasks")
	}
	beside := []string{"/healthz", "/readyz", "/metrics"}
	if bare, _, _ := strings.Cut(path, "?"); !slices.Contains(beside, bare) && !strings.HasPrefix(path, api.Base+"/") {
		path = api.Base + path
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	resp, err := c.Send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return a.printProblem(c, resp)
	}
	if _, err := io.Copy(a.foreign(), resp.Body); err != nil {
		return &commands.Refused{Code: commands.Unreachable, Why: "the answer broke off", Err: err, Hint: "ask again; a token that was revoked ends what is answered to it"}
	}
	return nil
}

// printProblem prints an answer that is a problem, and returns the exit code of its code.
func (a *app) printProblem(c *control.Client, resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostBody))
	var p api.Problem
	if err != nil || resp.StatusCode < 400 || json.Unmarshal(text, &p) != nil || p.Code == "" {
		return c.Unexpected(resp)
	}
	if _, err := a.foreign().Write(text); err != nil {
		return err
	}
	return exitCode(exitOfCode(commands.Code(p.Code)))
}

// foreign is where an answer goes as it came; a terminal gets nothing that it would obey.
func (a *app) foreign() io.Writer {
	if terminal(a.out) {
		return &plainly{to: a.out}
	}
	return a.out
}

// plainly writes a foreign text to a terminal.
type plainly struct {
	to   io.Writer
	rest []byte // the beginning of a character
}

// Write writes the characters that have come to their end.
func (p *plainly) Write(b []byte) (int, error) {
	text := append(p.rest, b...)
	whole := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if at := len(text) - back; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				whole = at
			}
			break
		}
	}
	p.rest = slices.Clone(text[whole:])
	if _, err := io.WriteString(p.to, printable(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(b), nil
}
