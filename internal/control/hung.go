package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// How long an instance may leave a request without an answer before it is asked whether it is alive, and how long it may take to say so.
const (
	lateTime  = 3 * time.Second
	aliveTime = 2 * time.Second
)

// await returns the answer to req. A long one is none that hangs: an instance waits for what was asked, and says meanwhile that it is alive.
func (c *Client) await(req *http.Request) (*http.Response, error) {
	if c.Hung == nil {
		return c.http.Do(req)
	}
	watching, answered := context.WithCancel(req.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(watching)
	}()
	resp, err := c.http.Do(req)
	answered()
	<-watched
	return resp, err
}

// watch asks now and then until ctx ends whether the instance is alive, and tells once that it is not.
func (c *Client) watch(ctx context.Context) {
	for begun := time.Now(); ; {
		select {
		case <-time.After(lateTime):
		case <-ctx.Done():
			return
		}
		if c.silent(ctx, aliveTime) {
			c.told.Do(func() { c.Hung(time.Since(begun)) })
			return
		}
	}
}

// silent reports whether the process behind c does not say within a time that it serves, whatever else is the matter.
func (c *Client) silent(ctx context.Context, within time.Duration) bool {
	asking, done := context.WithTimeout(ctx, within)
	defer done()
	req, err := http.NewRequestWithContext(asking, http.MethodGet, c.url+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := c.http.Do(req)
	if err == nil {
		_ = resp.Body.Close() // that it came is all
	}
	return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}

// Alive refuses with what is known of the process that has the data directory where that does not say within a time that it serves.
func (c *Client) Alive(ctx context.Context, within time.Duration) error {
	if !c.silent(ctx, within) {
		return nil
	}
	pid := 0
	if c.remote == nil {
		pid = starting(c.dir)
	}
	switch {
	case pid == 0:
		return commands.Refuse(commands.Unreachable, "%s does not answer within %s", c.where, within).Hinting("it hangs, or its host has too much to do; see its log")
	case stopped(pid):
		return commands.Refuse(commands.Unreachable, "process %d, %s, is stopped by a signal or a debugger", pid, c.where).Hinting("to let it go on: kill -CONT %d", pid)
	}
	if open, most := openFiles(pid); most > 0 && open+fewFiles > most {
		return commands.Refuse(commands.Unreachable, "process %d, %s, has %d of %d open files, and does not answer within %s", pid, c.where, open, most, within).
			Hinting("it answers again when some are closed: end what has too many connections to it; what it has open is in /proc/%d/fd, for root; to let it have more now: prlimit --pid %[1]d --nofile=%d, and at its next start LimitNOFILE= of its unit, or ulimit -n", pid, 4*max(most, 256))
	}
	return commands.Refuse(commands.Unreachable, "process %d, %s, does not answer within %s", pid, c.where, within).
		Hinting("it hangs, or this host has too much to do; see its log; to end it: kill %d, and kill -KILL %[1]d if it stays, then start it again", pid)
}

// fewFiles is how many open files are no room: an instance opens some to answer a request.
const fewFiles = 4

// openFiles is how many files a process has open, and how many it may have; zeros where that cannot be read.
func openFiles(pid int) (open, most int64) {
	info, err := os.Stat(fmt.Sprintf("/proc/%d/fd", pid)) // its size is their number, from Linux 6.2 on; only root reads the names
	if err != nil {
		return 0, 0
	}
	open = info.Size()
	if names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
		open = int64(len(names))
	}
	limits, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if _, line, ok := strings.Cut(string(limits), "Max open files"); ok && open > 0 {
		_, _ = fmt.Sscan(line, &most) // unlimited stays 0
	}
	return open, most
}

// stopped reports whether a process is kept from running.
func stopped(pid int) bool {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(raw), ") ") // a name with that in it is none of ours
	return strings.HasPrefix(after, "T") || strings.HasPrefix(after, "t")
}
