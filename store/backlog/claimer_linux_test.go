package backlog_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// An entry is one line of a claimer's log: that it is about to ask for
// something, and then what the answer was. A question without an answer may or
// may not have had its effect.
type entry struct {
	N     int             `json:"n"` // of the question, within the process
	At    int64           `json:"at"`
	Op    string          `json:"op,omitempty"` // claim, complete, release, reclaim; empty in an answer
	Fence *backlog.Fence  `json:"fence,omitempty"`
	Code  commands.Code   `json:"code,omitempty"` // why it was refused
	Lost  string          `json:"lost,omitempty"` // an error that leaves open what happened
	Got   []backlog.Fence `json:"got,omitempty"`
	Back  []string        `json:"back,omitempty"` // tasks that a reclaim took back
}

// sharedNow is a clock that all processes of this machine read alike, in
// nanoseconds; nobody can set it.
func sharedNow() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// claimer works on a backlog and writes down every question and answer.
type claimer struct {
	Owner string
	URL   string
	Log   string
	Seed  uint64

	b    *backlog.Workspace
	mu   sync.Mutex // guards the rest
	file io.Writer
	sync func() error
	n    int
}

// say writes one line, which has left the process's memory when it returns.
func (c *claimer) say(e entry) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Op != "" {
		c.n++
		e.N = c.n
	}
	e.At = sharedNow()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = c.file.Write(append(line, '\n'))
	}
	if err = errors.Join(err, c.sync()); err != nil {
		panic(err)
	}
	return e.N
}

// ask does one thing with its question before and its answer after it.
func (c *claimer) ask(op string, f *backlog.Fence, do func(*entry) error) entry {
	answer := entry{N: c.say(entry{Op: op, Fence: f})}
	if err := do(&answer); err != nil {
		if answer.Code = commands.CodeOf(err); answer.Code == commands.Internal || answer.Code == "" {
			answer.Code, answer.Lost = "", err.Error()
		}
	}
	c.say(answer)
	return answer
}

func (c *claimer) claim(ctx context.Context, n int) []backlog.Fence {
	return c.ask("claim", nil, func(e *entry) error {
		list, err := c.b.Claim(ctx, backlog.ClaimTerms{Owner: c.Owner, Limit: n, Lease: time.Second})
		for _, l := range list {
			e.Got = append(e.Got, l.Fence)
		}
		return err
	}).Got
}

func (c *claimer) complete(ctx context.Context, f backlog.Fence) {
	c.ask("complete", &f, func(*entry) error { return failure(c.b.Complete(ctx, backlog.Act{Fence: &f})) })
}

func (c *claimer) release(ctx context.Context, f backlog.Fence) {
	c.ask("release", &f, func(*entry) error { return failure(c.b.Release(ctx, backlog.Act{Fence: &f})) })
}

func (c *claimer) reclaim(ctx context.Context) {
	c.ask("reclaim", nil, func(e *entry) error {
		list, err := c.b.Reclaim(ctx, "")
		for _, t := range list {
			e.Back = append(e.Back, t.ID)
		}
		return err
	})
}

// work goes on until somebody kills the process.
func (c *claimer) work(ctx context.Context) {
	r := rand.New(rand.NewPCG(c.Seed, 0))
	for {
		got := c.claim(ctx, 1+r.IntN(4))
		for _, f := range got {
			switch r.IntN(12) {
			case 0: // forgotten: its lease runs out
			case 1: // too slow: its lease has run out when it comes
				go func() {
					time.Sleep(time.Second + 100*time.Millisecond)
					c.complete(ctx, f)
				}()
			case 2:
				c.release(ctx, f)
			default:
				c.complete(ctx, f)
			}
		}
		if len(got) == 0 || r.IntN(4) == 0 {
			c.reclaim(ctx)
		}
	}
}

// claimerConfig makes TestKillClaimer a claimer; TestKillsWhileClaiming runs this binary again
// with it.
const claimerConfig = "SPAWNMESH_TEST_CLAIMER"

func TestKillClaimer(t *testing.T) {
	text := os.Getenv(claimerConfig)
	if text == "" {
		return
	}
	go func() { // it ends with its parent, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	c := &claimer{}
	require.NoError(t, json.Unmarshal([]byte(text), c))
	var err error
	c.b, err = openSide(t, c.URL, 4).backlog.Workspace(backlog.MainWorkspace, c.Owner)
	require.NoError(t, err)
	file, err := os.OpenFile(c.Log, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	c.file, c.sync = file, file.Sync
	c.work(t.Context())
}

// readLog reads what a claimer wrote before it was killed: the last line may be
// cut off, and then it was not said.
func readLog(path string) ([]entry, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // killed before it began
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var list []entry
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return list, nil
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		list = append(list, e)
	}
}
