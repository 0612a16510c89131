package spoke

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/internal/git"
	"github.com/spawnmesh/spawnmesh/spoke/transfer"
)

// carried is what a spoke fetches from its hubs and brings to them.
type carried struct {
	*transfer.Rows
	s *Spoke
}

// openTransfers lets orders have inputs, where git can be used: working trees are made by it.
func (s *Spoke) openTransfers(ctx context.Context) {
	var err error
	if s.git, err = git.Find(ctx); err != nil {
		s.Log.WarnContext(ctx, "orders with inputs are not taken", "err", err)
	} else {
		s.Policy.Fetches()
	}
	s.transfers = &transfer.Transfers{Blobs: s.Blobs, Source: carried{&transfer.Rows{Backlog: s.backlog, Hubs: s.board.Holders, Ended: s.sayLost(ctx)}, s}, Dial: s.board.Blobs, Room: s.hasRoomFor, Log: s.Log}
}

// sayLost says which tasks have ended as their inputs do not come.
func (s *Spoke) sayLost(ctx context.Context) func(tasks []string) {
	return func(tasks []string) {
		for _, task := range tasks {
			s.Log.WarnContext(ctx, "an input of an order does not come; its agent is not started", "id", task)
		}
	}
}

// Done has what waited for b claimed.
func (c carried) Done(ctx context.Context, b transfer.Blob) error {
	err := c.Rows.Done(ctx, b)
	if err == nil && !b.Put {
		c.s.work.Send()
	}
	return err
}

// Failed says that what an agent has left stays here.
func (c carried) Failed(ctx context.Context, b transfer.Blob, why error) error {
	if b.Put {
		c.s.Log.ErrorContext(ctx, "the hub does not take what an agent has left; it stays here", "connection", b.Conn, "blob", b.Digest, "err", why)
	}
	return c.Rows.Failed(ctx, b, why)
}

// withRepos are the tasks that have a repository.
func (s *Spoke) withRepos() (tasks []string) {
	list, _ := os.ReadDir(filepath.Join(s.Dir, reposDir)) // where it is not there, or cannot be read, nothing goes
	for _, f := range list {
		if _, err := uuid.Parse(f.Name()); err == nil {
			tasks = append(tasks, f.Name())
		}
	}
	return tasks
}

// retireRepos removes the repositories of tasks of which no attempt is left here, and that are over.
func (s *Spoke) retireRepos(ctx context.Context, failed map[string]error) {
	var gone []string
	for _, task := range s.withRepos() {
		if _, err := os.Lstat(agentDir(s.Dir, task)); errors.Is(err, fs.ErrNotExist) {
			gone = append(gone, task)
		}
	}
	open, err := s.backlog.Open(ctx, gone)
	if err != nil {
		return // it is tried again
	}
	for _, task := range gone {
		if slices.Contains(open, task) {
			continue
		}
		if err := os.RemoveAll(s.repoDir(task)); err != nil {
			failed[s.repoDir(task)] = err
		}
	}
}

// errNoGit keeps an order with a working tree from being started where git has gone since it was taken.
var errNoGit = errors.New("git cannot be used on this host any more")
