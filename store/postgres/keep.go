package postgres

import (
	"context"
	"fmt"
	"time"
)

const (
	maxRestarts   = 5
	restartPeriod = time.Minute
	retryPause    = 200 * time.Millisecond // times the number of tries
)

// keep runs the server until ctx ends, starting it again when it dies, and stops it in the end.
func (c *Cluster) keep(ctx context.Context, srv *server) {
	defer close(c.kept)
	defer c.removeShortRun()
	var restarts []time.Time
	for {
		select {
		case <-ctx.Done():
			c.stopErr = srv.stop()
			c.setPid(0)
			return
		case <-srv.done:
			c.setPid(0)
		}
		if srv = c.revive(ctx, &restarts, srv.err); srv == nil {
			return
		}
	}
}

// revive starts the server again, as often as the limit allows. It returns nil when there is none because ctx has
// ended or the limit is reached; then the cluster has failed.
func (c *Cluster) revive(ctx context.Context, restarts *[]time.Time, cause error) *server {
	for ctx.Err() == nil {
		now := time.Now()
		for len(*restarts) > 0 && now.Sub((*restarts)[0]) >= restartPeriod {
			*restarts = (*restarts)[1:]
		}
		if len(*restarts) == maxRestarts {
			c.fail(cause)
			return nil
		}
		*restarts = append(*restarts, now)
		c.log.WarnContext(ctx, "database server has ended, starting it again", "dir", c.dir, "cause", cause)

		srv, err := c.launch(ctx)
		if err == nil {
			return srv
		}
		cause = err
		select { // a disk that is full now may not be in a second
		case <-ctx.Done():
		case <-time.After(time.Duration(len(*restarts)) * retryPause):
		}
	}
	return nil
}

func (c *Cluster) fail(cause error) {
	c.mu.Lock()
	c.err = fmt.Errorf("the database server of %s ended again after %d restarts within %s, see %s: %w",
		c.dir, maxRestarts, restartPeriod, c.logFile(), cause)
	c.mu.Unlock()
	close(c.failed)
}

func (c *Cluster) setPid(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = pid
}
