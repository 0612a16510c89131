package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	fastStop      = 30 * time.Second // for a shutdown that writes a checkpoint
	immediateStop = 10 * time.Second // for one that does not
	pollEvery     = 5 * time.Millisecond
	logLimit      = 8 << 20 // bytes
)

// A server is one run of the postgres program.
type server struct {
	process *os.Process
	pid     int
	done    chan struct{} // closed when the process has ended and is reaped
	err     error         // how it ended, never nil; set before done is closed
}

var errExited = errors.New("exit status 0")

// start runs cmd. The goroutine it leaves ends with the process, which stop and keep await.
func start(cmd *exec.Cmd) (*server, error) {
	s := &server{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux sends the signal for our death when the thread that forked ends, so this goroutine keeps its
		// thread for as long as the server lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			s.err = cmp.Or(cmd.Wait(), errExited)
			close(s.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	s.process, s.pid = cmd.Process, cmd.Process.Pid
	return s, nil
}

// stop asks for a fast shutdown, then for an immediate one. It never kills: a server that hangs in the kernel is
// better left alone than cut off from its data.
func (s *server) stop() error {
	for _, try := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, fastStop}, {syscall.SIGQUIT, immediateStop}} {
		_ = s.process.Signal(try.signal) // fails only when it has ended
		select {
		case <-s.done:
			return nil
		case <-time.After(try.wait):
		}
	}
	return fmt.Errorf("the database server (pid %d) does not stop: look at it, and end it by hand if need be", s.pid)
}

// launch starts the server on a cluster that nobody else uses, and returns when it lets clients in. If it does not,
// or if ctx ends first, no server is left.
func (c *Cluster) launch(ctx context.Context) (*server, error) {
	began := time.Now()
	if err := c.clearStale(ctx); err != nil {
		return nil, err
	}
	logFile, err := c.openLog()
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	before, err := logFile.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("reading the database log: %w", err)
	}

	// On the command line, because no file may override where our clients look, or open another way in.
	socketDirs := `unix_socket_directories="` + strings.ReplaceAll(c.run, `"`, `""`) + `"`
	cmd := c.account.command(c.data, c.programs.postgres(), "-D", c.data, "-c", socketDirs, "-c", "port="+port, "-c", "listen_addresses=")
	cmd.Stdout, cmd.Stderr = logFile, logFile
	srv, err := start(cmd)
	if err != nil {
		return nil, err
	}
	if err := c.ready(ctx, srv); err != nil {
		err = fmt.Errorf("%w%s", err, printed(logFile, before))
		return nil, errors.Join(err, srv.stop())
	}
	c.setPid(srv.pid)
	c.log.InfoContext(ctx, "database server is ready", "pid", srv.pid, "dir", c.dir, "took", time.Since(began))
	return srv, nil
}

// openLog opens the file that the server prints to, putting a long one aside.
func (c *Cluster) openLog() (*os.File, error) {
	if info, err := os.Stat(c.logFile()); err == nil && info.Size() > logLimit {
		if err := os.Rename(c.logFile(), c.logFile()+".1"); err != nil {
			return nil, fmt.Errorf("putting the database log aside: %w", err)
		}
	}
	file, err := os.OpenFile(c.logFile(), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the database log: %w", err)
	}
	return file, nil
}

// printed returns the last lines that the server wrote to its log after the offset before, for an error text.
func printed(log *os.File, before int64) string {
	info, err := log.Stat()
	if err != nil || info.Size() <= before {
		return ""
	}
	text := make([]byte, min(info.Size()-before, 2000))
	if _, err := log.ReadAt(text, info.Size()-int64(len(text))); err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return "\n" + string(bytes.Join(lines[max(0, len(lines)-6):], []byte("\n")))
}

// ready waits until the server says that it is ready and lets us in.
func (c *Cluster) ready(ctx context.Context, s *server) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if p := readPidFile(c.pidFile()); p.pid == s.pid && p.status == "ready" {
			return c.admit(ctx, s)
		}
		select {
		case <-s.done:
			return fmt.Errorf("the server ended at once (%w)", s.err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for the server to be ready: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// admit shows that the program can log in.
func (c *Cluster) admit(ctx context.Context, s *server) error {
	conn, err := c.connect(ctx, s)
	if pg, said := errors.AsType[*pgconn.PgError](err); said && pg.Code == wrongPassword {
		return fmt.Errorf("the password in %s is not the database's, as after a restore of one without the other: remove that file, and a start makes new ones: %w",
			c.passwordFile(), err)
	}
	if err != nil {
		return fmt.Errorf("connecting to the server: %w", err)
	}
	return conn.Close(ctx)
}

const wrongPassword = "28P01"

// connect tries for a while: clients of the server that died may have taken every place for a moment.
func (c *Cluster) connect(ctx context.Context, s *server) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.url())
		if pg, said := errors.AsType[*pgconn.PgError](err); err == nil || said && pg.Code == wrongPassword {
			return conn, err
		}
		select {
		case <-s.done:
			return nil, err
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
