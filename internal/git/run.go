package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Call is one run of git.
type Call struct {
	Args   []string
	Dir    string    // where it runs; "" for the root directory
	GitDir string    // the repository; "" has git look for one from Dir
	Env    []string  // variables besides those of every run
	In     io.Reader // nil for none; the run lasts as long as a Read of it
	Out    io.Writer // nil for none
}

// Bounds of a run.
const (
	outputMost = 4 << 20 // of what [Git.Output] returns
	errorMost  = 2 << 10 // of what git says, in an error
	memoryMost = 3 << 30 // what a process may write to: objects of others may be made to unfold to any size
	lastWords  = 5 * time.Second
)

// A Failed is the error of a run that git ended with a code other than 0.
type Failed struct {
	Command string // the first word after git
	Code    int    // -1 where a signal ended it
	Said    string // what it wrote to standard error: one line, bounded, without control characters
}

func (f *Failed) Error() string {
	said := f.Said
	if said == "" {
		said = "it said nothing"
	}
	return fmt.Sprintf("git %s ended with %d: %s", f.Command, f.Code, said)
}

// Unwrap is the fault of the disk that git has ended by, as it says; nil = none is known.
func (f *Failed) Unwrap() error {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO} {
		if strings.Contains(strings.ToLower(f.Said), errno.Error()) {
			return errno
		}
	}
	return nil
}

// Run runs git until its end. When ctx ends first, all processes of the run are killed.
func (g *Git) Run(ctx context.Context, c Call) error {
	p, err := g.start(ctx, c)
	if err != nil {
		return err
	}
	return p.wait(ctx)
}

// Output returns what a run writes to standard output; more than 4 MiB is an error.
func (g *Git) Output(ctx context.Context, c Call) (string, error) {
	out := &clip{most: outputMost}
	c.Out = out
	if err := g.Run(ctx, c); err != nil {
		return "", err
	}
	if out.cut {
		return "", fmt.Errorf("git %s: its output has more than %d bytes", c.Args[0], outputMost)
	}
	return out.text.String(), nil
}

// line is Output without the newline at its end.
func (g *Git) line(ctx context.Context, c Call) (string, error) {
	text, err := g.Output(ctx, c)
	return strings.TrimSuffix(text, "\n"), err
}

// A process is a run that has begun. It is ended by the goroutine that began it, which keeps its thread until then: the process is killed
// when that thread ends, as it does with this process.
type process struct {
	cmd  *exec.Cmd
	said *clip
	name string
}

func (g *Git) start(ctx context.Context, c Call) (*process, error) {
	cmd := exec.CommandContext(ctx, g.path, c.Args...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout = c.Dir, g.environ(c), c.In, c.Out
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	p := &process{cmd, &clip{most: errorMost}, c.Args[0]}
	cmd.Stderr = p.said
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true,            // an interrupt at a terminal is for this process
		Pdeathsig: syscall.SIGKILL, // what goes on would write beside who comes after
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = lastWords // for a child of git that keeps the output open
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("starting git %s: %w", p.name, err)
	}
	if g.home == nil { // what it fails at is memory it does not get, and then it ends
		_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: memoryMost, Max: memoryMost}, nil)
	}
	return p, nil
}

func (p *process) wait(ctx context.Context) error {
	err := p.cmd.Wait()
	runtime.UnlockOSThread()
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("git %s: %w", p.name, context.Cause(ctx))
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return &Failed{p.name, exit.ExitCode(), clean(p.said.text.String(), p.said.cut)}
	}
	if err != nil {
		return fmt.Errorf("git %s: %w", p.name, err)
	}
	return nil
}

// clean is a text of git in one line: names in it may be anybody's.
func clean(text string, cut bool) string {
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f {
			return '?'
		}
		return r
	}, text)
	if cut {
		text += " ..."
	}
	return text
}

// A clip keeps the first bytes that it is given.
type clip struct {
	text bytes.Buffer
	most int
	cut  bool
}

func (c *clip) Write(b []byte) (int, error) {
	room := min(c.most-c.text.Len(), len(b))
	c.text.Write(b[:room])
	c.cut = c.cut || room < len(b)
	return len(b), nil
}
