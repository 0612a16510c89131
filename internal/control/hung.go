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
	return commands.Refuse(commands.Unreachable, "process %d, %s, does not answer within %s", pid, c.where, within).
		Hinting("it hangs, or this host has too much to do; see its log; to end it: kill %d, and kill -KILL %[1]d if it stays, then start it again", pid)
}

// stopped reports whether a process is kept from running.
func stopped(pid int) bool {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(raw), ") ") // a name with that in it is none of ours
	return strings.HasPrefix(after, "T") || strings.HasPrefix(after, "t")
}
