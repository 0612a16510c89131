package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An InstanceLock keeps a data directory for one running instance. The kernel releases it when the process ends, in
// whatever way, so it is never stale. It does not reach across machines that share a file system over NFS.
type InstanceLock struct {
	file   *os.File
	guests *os.File // locked by those who use the server meanwhile
}

// An InUseError says that another running instance has the data directory.
type InUseError struct {
	Dir   string    // the directory that was asked for
	PID   int       // the process that has it; 0 if it has not said yet
	Since time.Time // when it took it; zero if it has not said yet
	Brief bool      // it took it for one act, and it will be free again soon
}

func (e *InUseError) Error() string {
	who := "another running instance"
	if e.PID != 0 {
		who += fmt.Sprintf(" (pid %d since %s)", e.PID, e.Since.Format(time.RFC3339))
	}
	return fmt.Sprintf("%s is in use by %s: stop that one, or give this one a directory of its own", e.Dir, who)
}

// Lock takes the data directory dir for this process, making it if it is missing. If another instance has it, the
// error is an [*InUseError]. An instance takes this lock whether it runs a private server or not. Guests stay out until
// [InstanceLock.AdmitGuests].
func Lock(dir string) (*InstanceLock, error) { return lockFor(dir, "") }

// LockBriefly is [Lock] for one act, such as a single command: who finds the directory in use learns that it is worth
// waiting for.
func LockBriefly(dir string) (*InstanceLock, error) { return lockFor(dir, brief) }

// brief ends the note of an owner that will soon be gone.
const brief = " briefly"

func lockFor(dir, span string) (*InstanceLock, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "instance.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the instance lock: %w", err)
	}
	if err := take(file, dir, span); err != nil {
		file.Close()
		return nil, err
	}
	l := &InstanceLock{file: file}
	if l.guests, err = openGuests(dir); err == nil {
		err = l.tell(closed)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func take(file *os.File, dir, span string) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for until := time.Now().Add(orphanTime); errors.Is(err, unix.EWOULDBLOCK); err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) {
		e := holder(file, dir)
		if !gone(e.PID) || time.Now().After(until) {
			return e
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", file.Name(), err)
	}
	text := fmt.Sprintf("pid %d since %s%s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339), span)
	if err := errors.Join(file.Truncate(0), writeAt(file, text)); err != nil {
		return fmt.Errorf("writing the instance lock: %w", err)
	}
	return nil
}

// orphanTime is how long the lock of a dead owner may stay taken. A process that
// is killed while it starts a child leaves one behind that shares its descriptors
// until it executes its own program: moments, but longer than a quick restart.
const orphanTime = 5 * time.Second

// gone reports whether the lock's owner is no more: there is no process pid, or
// the owner has taken its name out before it let go. One that has just taken the
// lock writes its name at once.
func gone(pid int) bool {
	return pid == 0 || errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// holder says who has the lock, as far as the file tells: its owner writes it only after locking.
func holder(file *os.File, dir string) *InUseError {
	e := &InUseError{Dir: dir}
	text := make([]byte, 100)
	n, _ := file.ReadAt(text, 0)
	var since string
	note := strings.TrimSpace(string(text[:n]))
	if _, err := fmt.Sscanf(note, "pid %d since %s", &e.PID, &since); err != nil {
		e.PID = 0
		return e
	}
	e.Brief = strings.HasSuffix(note, brief)
	e.Since, _ = time.Parse(time.RFC3339, since)
	return e
}

// Running says which instance has the data directory dir, and nil where none has it for longer than one act. It takes nothing.
func Running(dir string) *InUseError {
	file, err := os.Open(filepath.Join(dir, "instance.lock"))
	if err != nil {
		return nil
	}
	defer file.Close() // and let go
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if e := holder(file, dir); !gone(e.PID) && !e.Brief {
		return e
	}
	return nil
}

// Close releases the directory. The file stays, because removing it could let two instances in.
func (l *InstanceLock) Close() error {
	var err error
	if l.guests != nil {
		err = l.guests.Close() // first: the next owner must find it free
	}
	if err := errors.Join(err, l.file.Truncate(0), l.file.Close()); err != nil {
		return fmt.Errorf("releasing the instance lock: %w", err)
	}
	return nil
}
