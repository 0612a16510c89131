package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// A process is one contender, as the process that compares them sees it.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// start runs a contender in a process of its own, so that its memory is its own.
func start(ctx context.Context, name string) (*process, error) {
	cmd, err := command(ctx, name)
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return &process{name: name, cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

func command(ctx context.Context, name string) (*exec.Cmd, error) {
	if name == "graphile" {
		node, err := exec.LookPath("node")
		if err != nil {
			return nil, errNode
		}
		return exec.CommandContext(ctx, node, filepath.Join(graphileDir, "peer.mjs")), nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return exec.CommandContext(ctx, self, "contend", name), nil
}

// ask sends a request and waits for its reply.
func (p *process) ask(q request) (reply, error) {
	var r reply
	text, err := json.Marshal(q)
	if err != nil {
		return r, err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return r, fmt.Errorf("asking %s for %s: %w", p.name, q.Phase, err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return r, fmt.Errorf("%s ended during %s; what it printed stands above: %w", p.name, q.Phase, err)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("reading what %s answered to %s: %w", p.name, q.Phase, err)
	}
	if r.Error != "" {
		return r, fmt.Errorf("%s, %s: %s", p.name, q.Phase, r.Error)
	}
	return r, nil
}

// end tells the contender that no request comes any more, and waits for its end.
func (p *process) end() error {
	if err := errors.Join(p.in.Close(), p.cmd.Wait()); err != nil {
		return fmt.Errorf("ending %s: %w", p.name, err)
	}
	return nil
}
