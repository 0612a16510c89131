package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// An account is the OS user that the server runs as: ourselves, or somebody else when we are root.
type account struct {
	name     string
	uid, gid int
}

// accountFor returns who runs the server of the cluster in data: its owner if there is one. A process that is not
// root can only run it as itself.
func accountFor(wanted, data string) (account, error) {
	self := os.Geteuid()
	owner, exists := ownerOf(data)
	switch {
	case self != 0 && exists && owner != self:
		return account{}, fmt.Errorf("%s belongs to uid %d, and this process runs as uid %d: use that user or another data directory",
			data, owner, self)
	case self != 0:
		return byID(self)
	case exists && owner == 0:
		return account{}, fmt.Errorf("%s belongs to root, and PostgreSQL refuses to run as root: chown -R postgres %s", data, data)
	case exists:
		return byID(owner)
	case wanted != "":
		return byName(wanted)
	}
	for _, name := range []string{"postgres", "mesh", "nobody"} {
		if a, err := byName(name); err == nil {
			return a, nil
		}
	}
	return account{}, errors.New("running as root, and PostgreSQL refuses root: make a user for it (useradd --system postgres), " +
		"or name one with SPAWNMESH_PG_USER")
}

func ownerOf(path string) (uid int, exists bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), true
}

func byID(uid int) (account, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return account{}, fmt.Errorf("PostgreSQL needs a name for the user id %d it runs as, add a line for it to /etc/passwd: %w",
			uid, err)
	}
	return parse(u)
}

func byName(name string) (account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, fmt.Errorf("looking up the user %q for the database server: %w", name, err)
	}
	a, err := parse(u)
	if err == nil && a.uid == 0 {
		err = fmt.Errorf("the database server cannot run as %q: PostgreSQL refuses root", name)
	}
	return a, err
}

func parse(u *user.User) (account, error) {
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return account{}, fmt.Errorf("reading the ids of user %q: %w", u.Username, err)
	}
	return account{u.Username, uid, gid}, nil
}

// own gives a path that root has made to the server's user.
func (a account) own(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := os.Lchown(path, a.uid, a.gid); err != nil {
		return fmt.Errorf("giving %s to %s: %w", path, a.name, err)
	}
	return nil
}

// command prepares a server program that runs as a and ends when we do: in a process group of its own, so that an
// interrupt from the terminal reaches only us, who then stop it in order.
func (a account) command(dir, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = serverEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	endWithUs(cmd.SysProcAttr)
	return cmd
}

// serverEnv is the whole environment of a server program: no PG variables, no locale and nothing secret of ours.
func serverEnv() []string {
	return []string{"LC_ALL=C", "TZ=UTC", "PATH=/usr/local/bin:/usr/bin:/bin"}
}

// admitTo makes dir and shows, by doing it, that the account can enter it and run the programs.
func (a account) admitTo(ctx context.Context, dir string, p programs) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	err := run(ctx, a.command(dir, p.postgres(), "--version"))
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if wall, mode := a.wall(dir); wall != "" {
		return fmt.Errorf("running as root, so PostgreSQL runs as %q, who cannot enter %s (mode %o): "+
			"use a data directory such as /var/lib/spawnmesh", a.name, wall, mode)
	}
	if wall, mode := a.wall(p.dir); wall != "" {
		return fmt.Errorf("running as root, so PostgreSQL runs as %q, who cannot enter %s (mode %o) to run %s: "+
			"install it where everybody can", a.name, wall, mode, p.postgres())
	}
	return fmt.Errorf("running %s as %q in %s: %w", p.postgres(), a.name, dir, err)
}

// wall returns the first directory on the way to path whose mode keeps the account out.
func (a account) wall(path string) (string, fs.FileMode) {
	if parent := filepath.Dir(path); parent != path {
		if wall, mode := a.wall(parent); wall != "" {
			return wall, mode
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", 0
	}
	stat, enter := info.Sys().(*syscall.Stat_t), fs.FileMode(0o001)
	switch {
	case int(stat.Uid) == a.uid:
		enter = 0o100
	case int(stat.Gid) == a.gid:
		enter = 0o010
	}
	if info.Mode().Perm()&enter != 0 {
		return "", 0
	}
	return path, info.Mode().Perm()
}
