package hostfile

import (
	"bufio"
	"io"
	"os"
	osuser "os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A user is who this process runs as.
type user struct {
	uid, gid uint32
	group    func(gid uint32) bool // whether only root and this user are in it
}

func me() user {
	u := user{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	u.group = func(gid uint32) bool {
		return gid == 0 && ownGroup(gid, "root") || gid == u.gid && ownGroup(gid, nameOf(u.uid))
	}
	return u
}

// directory says why a directory on the way is not passed, nil when it is.
func (u user) directory(path string, st *unix.Stat_t) *UnsafeError {
	if st.Uid != 0 && st.Uid != u.uid {
		return u.stranger(path, st, ", who can replace what is in it,")
	}
	if st.Mode&unix.S_ISVTX != 0 {
		return nil // whose what is in it is, is looked at there
	}
	return u.writers(path, st)
}

// writers says who else can write a directory.
func (u user) writers(path string, st *unix.Stat_t) *UnsafeError {
	group := st.Mode&0o020 != 0 && !u.group(st.Gid)
	switch {
	case st.Mode&0o002 != 0 && group:
		return unsafe(path, "can be written by everybody", run("chmod go-w", path))
	case st.Mode&0o002 != 0:
		return unsafe(path, "can be written by everybody", run("chmod o-w", path))
	case group:
		return unsafe(path, "can be written by group "+strconv.Itoa(int(st.Gid)), run("chmod g-w", path))
	}
	return nil
}

func nameOf(uid uint32) string {
	u, err := osuser.LookupId(strconv.Itoa(int(uid)))
	if err != nil {
		return "" // no group is named so
	}
	return u.Username
}

func ownGroup(gid uint32, name string) bool {
	f, err := os.Open("/etc/group")
	if err != nil {
		return false
	}
	defer f.Close()
	return private(f, gid, name)
}

// private reports whether a file of groups has gid as the group of that very user: it
// has the user's name, as user private groups have, and no other members. A group
// that the file does not know may have any.
func private(groups io.Reader, gid uint32, name string) bool {
	known := false
	for lines := bufio.NewScanner(groups); lines.Scan(); {
		field := strings.Split(lines.Text(), ":")
		if len(field) != 4 || field[2] != strconv.Itoa(int(gid)) {
			continue
		}
		if field[0] != name || name == "" || strings.Trim(field[3], " ") != "" && field[3] != name {
			return false
		}
		known = true
	}
	return known
}
