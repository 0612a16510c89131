package federation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// An instance begins an incarnation each time it is started. Its data directory and
// its database both keep the mark of the last one, so that a database that was put
// back alone, or a directory that was copied, is noticed before anything is sent
// or started. Only a file system that was set back as a whole is not: the peers
// notice that.

// beginIncarnation makes the mark of a new incarnation, after it was found out whether the
// database has the mark of the last one.
func (b *Board) beginIncarnation(ctx context.Context) error {
	file := filepath.Join(b.Dir, "incarnation")
	found, made, err := readMark(file)
	if err != nil {
		return err
	}
	if found != "" {
		lost, err := b.DB.NewSince(ctx, made)
		if err != nil {
			return err
		}
		if lost {
			return commands.Refuse(commands.Conflict, "the database is new, and the data directory %s belongs to another one, which is gone", b.Dir).
				Hinting("put the database back from a backup; to begin without it, as if nobody had ever joined: remove %s", file)
		}
	}
	left, err := readLeft(file)
	if err != nil {
		return err
	}
	left = append(left, found)
	b.incarnation = uuid.NewString()
	// Both are on the disk before the database has the new mark: whoever is killed in
	// between, or has no power any more, finds the mark that the database still has.
	err = errors.Join(fsync.Replace(file+leftMarks, []byte(strings.Join(left, "\n")), 0o600), fsync.Replace(file, []byte(b.incarnation), 0o600))
	if err != nil {
		return fmt.Errorf("marking the data directory: %w", err)
	}
	next, _, err := readMark(file)
	if err != nil {
		return err
	}
	if b.restored, err = b.DB.BeginIncarnation(ctx, left, next); err != nil {
		return err
	}
	if err := errors.Join(os.Remove(file+leftMarks), fsync.Dir(b.Dir)); err != nil {
		return fmt.Errorf("marking the data directory: %w", err)
	}
	if b.restored {
		b.Log.WarnContext(ctx, "the database is not as the data directory left it: it was restored from a backup; what was suspended, frozen, invited, granted or limited since is undone, and its tokens let nobody in until they are confirmed", "next", b.line("doctor"))
	}
	return nil
}

// leftMarks is the end of the name of the file that has the marks of earlier incarnations
// while nobody can tell whether the database has the newest one.
const leftMarks = ".left"

// readLeft returns the marks of earlier incarnations that the database may still have: more
// than none after a start that ended before it was known that the database has its mark.
func readLeft(file string) ([]string, error) {
	text, err := os.ReadFile(file + leftMarks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the marks of the data directory: %w", err)
	}
	return strings.Split(string(text), "\n"), nil
}

// line is a command line for this instance, as it can be pasted.
func (b *Board) line(words ...string) string {
	return commands.ShellLine(append([]string{"spawnmesh", "--data-dir", b.Dir}, words...))
}

// readMark returns what a data directory says of its last incarnation, "" for nothing, and
// since when. A copy of the file says something else: nobody chooses when an inode
// was changed.
func readMark(file string) (mark string, at time.Time, err error) {
	id, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", at, nil
	}
	if err != nil {
		return "", at, fmt.Errorf("reading the mark of the data directory: %w", err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(file, &st); err != nil {
		return "", at, fmt.Errorf("reading the mark of the data directory: %w", err)
	}
	return fmt.Sprintf("%s %d.%09d", id, st.Ctim.Sec, st.Ctim.Nsec), time.Unix(st.Ctim.Sec, st.Ctim.Nsec), nil
}

// byClone is who suspends a connection over which two instances speak with the
// peer's key.
const byClone = "clone"

// noteLink notes which incarnation of a peer has linked. Two instances with one key end
// each other's links, often before a heartbeat is handled, and of the heartbeats that wait
// only the newest is. So it is the links that are counted.
func (b *Board) noteLink(conn, incarnation string, since time.Time) {
	x := b.Exchange(conn)
	b.changed() // a person is told of the link
	if x == nil || !signing.ValidUUID(incarnation) {
		return
	}
	ctx, done := x.brief(context.Background()) // before the turn: links that wait for it do not add up
	defer done()
	x.noting.Lock()
	defer x.noting.Unlock()
	if !since.After(x.noted) {
		return // the link that replaced this one was noted first
	}
	x.noted = since
	if err := errors.Join(x.noteIncarnation(ctx, incarnation), x.suspendIfTwice(ctx)); err != nil {
		x.log.DebugContext(ctx, "noting the incarnation of a new link", "err", err)
	}
}

// noteIncarnation notes which incarnation of the peer is heard. An instance that is started
// again has a new one and never uses the old one again. So when an old one is heard after
// a newer one, two instances run with the peer's key.
func (x *Exchange) noteIncarnation(ctx context.Context, incarnation string) error {
	x.mu.Lock()
	known := incarnation == "" || incarnation == x.heardIncarnation
	x.mu.Unlock()
	if known {
		return nil
	}
	again, err := x.board.DB.NoteIncarnation(ctx, x.id, incarnation)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.heardIncarnation = incarnation
	if again {
		x.twice, x.history.link = true, 0
	}
	return nil
}

// suspendIfTwice suspends the connection when two instances run with the peer's key. What
// fails here is done with the next link or heartbeat, of whichever of the two.
func (x *Exchange) suspendIfTwice(ctx context.Context) error {
	p := x.peer.Load()
	x.mu.Lock()
	twice := x.twice
	x.mu.Unlock()
	if !twice || p.State != store.Active {
		return nil
	}
	return x.suspendNow(ctx, p, byClone, fmt.Sprintf("two instances run with the key of %s and are heard by turns: stop one of them, then resume; if nobody knows why, revoke", p.Name))
}

// suspendIfCloned suspends a connection whose peer says that another instance runs with
// this one's key.
func (x *Exchange) suspendIfCloned(ctx context.Context, p *Peer, v commands.ConnectionView) error {
	if v.State != string(store.Suspended) || v.By != byClone || p.State != store.Active {
		return nil
	}
	return x.suspendNow(ctx, p, byPeer, p.Name+" says: "+v.Reason)
}

// suspendNow suspends a connection. A peer whose link is cut before a heartbeat tells it
// why asks and is told; see told.go.
func (x *Exchange) suspendNow(ctx context.Context, p *Peer, by, reason string) error {
	if err := x.board.changeBySelf(ctx, p, store.Suspended, reason, by); err != nil {
		return err
	}
	now := *p
	now.State, now.By, now.Reason = store.Suspended, by, reason
	x.follow(&now)
	return nil
}
