package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"
)

// ErrNotServing says that the private server of a data directory takes no guests at this moment: its owner is starting
// it or about to stop it, or has just gone. A caller tries again from the start, with [Lock].
var ErrNotServing = errors.New("no private database serves there at this moment")

// ErrElsewhere says that the instance in a data directory runs no private server: its database is another one.
var ErrElsewhere = errors.New("the instance there uses a database of its own choice and runs no private one")

// What the owner of a data directory tells guests, in the file that they lock.
const (
	guestsFile = "guests.lock"
	closed     = "closed\n" // not yet, or no longer
	elsewhere  = "elsewhere\n"
)

// A Guest is leave to use the private server that another process runs in a data directory. That process does not stop
// its server before the guest has closed, unless its patience ends. The kernel ends the leave with the process.
type Guest struct {
	file *os.File
	url  string
}

// Visit asks for leave to use the private server of dir, which some other process has locked. The error is
// [ErrNotServing] or [ErrElsewhere] when there is no server to use.
func Visit(ctx context.Context, dir string) (*Guest, error) {
	where, err := layoutOf(dir)
	if err != nil {
		return nil, err
	}
	file, err := openGuests(where.dir)
	if err != nil {
		return nil, err
	}
	g := &Guest{file, where.url()}
	if err := g.enter(ctx, where); err != nil {
		file.Close()
		return nil, fmt.Errorf("using the private database of %s: %w", where.dir, err)
	}
	return g, nil
}

func openGuests(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, guestsFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the guests: %w", err)
	}
	return file, nil
}

// enter locks first and looks then: an owner that leaves later waits for us, one that left before is seen to have.
func (g *Guest) enter(ctx context.Context, where layout) error {
	err := unix.Flock(int(g.file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrNotServing
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", g.file.Name(), err)
	}
	switch g.said() {
	case "":
	case elsewhere:
		return ErrElsewhere
	default:
		return ErrNotServing
	}
	return where.listens(ctx)
}

// said is what the owner tells its guests.
func (g *Guest) said() string {
	text := make([]byte, 20)
	n, _ := g.file.ReadAt(text, 0)
	return string(text[:n])
}

// listens makes sure that a server of ours is there: a socket in /tmp could be anybody's. Whether it lets its guest in,
// the guest finds out: a session costs more than most of what a guest does in one.
func (l layout) listens(ctx context.Context) error {
	info, err := os.Lstat(l.run)
	if err != nil {
		return ErrNotServing
	}
	uid := int(info.Sys().(*syscall.Stat_t).Uid)
	if owner, exists := ownerOf(l.data); !exists || !info.IsDir() || uid != owner && uid != os.Geteuid() {
		return ErrNotServing
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", l.socket())
	if Away(err) {
		return fmt.Errorf("%w (%w)", ErrNotServing, err)
	}
	if err != nil {
		return fmt.Errorf("connecting to the server there: %w", err)
	}
	_ = conn.Close() // it listens: that is all we wanted to know
	return nil
}

// Away reports whether err says that a server is not there, does not answer, is
// starting, or went away under our hands. One that answers with a no is there.
func Away(err error) bool {
	if pg, said := errors.AsType[*pgconn.PgError](err); said {
		return strings.HasPrefix(pg.Code, sentAway)
	}
	_, network := errors.AsType[net.Error](err)
	return (network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && !errors.Is(err, fs.ErrPermission)
}

// sentAway begins the codes with which Postgres sends its clients away: it starts, stops or has crashed.
const sentAway = "57P0"

// URL returns the address of the instance's database, as [Cluster.URL] does.
func (g *Guest) URL() string { return g.url }

// Leaving reports whether the owner wants to stop its server: the guest should close soon, and try from the start.
func (g *Guest) Leaving() bool { return g.said() != "" }

// Close tells the owner that the guest no longer needs the server.
func (g *Guest) Close() error { return g.file.Close() }

// ServesElsewhere tells guests that there is no private server here, so that they need not wait for one.
func (l *InstanceLock) ServesElsewhere() error { return l.tell(elsewhere) }

// AwaitGuests lets no more guests in and returns when the last one has gone, or after patience, or when ctx ends. The
// owner calls it before it closes its server.
func (l *InstanceLock) AwaitGuests(ctx context.Context, patience time.Duration) error {
	if err := l.tell(closed); err != nil {
		return err
	}
	for until := time.Now().Add(patience); ; {
		err := unix.Flock(int(l.guests.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || time.Now().After(until) || ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("waiting for guests in %s: %w", l.guests.Name(), err)
		}
		time.Sleep(pollEvery)
	}
}

// AdmitGuests lets guests in: the owner has started its server and prepared the database.
func (l *InstanceLock) AdmitGuests() error { return l.tell("") }

// tell says a word to guests; none lets them in.
func (l *InstanceLock) tell(word string) error {
	if err := errors.Join(l.guests.Truncate(0), writeAt(l.guests, word)); err != nil {
		return fmt.Errorf("telling guests in %s: %w", l.guests.Name(), err)
	}
	return nil
}
