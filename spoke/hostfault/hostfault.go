// Package hostfault tells a fault of this host, which may pass, from what is wrong with an order. It is the one list of what counts as one.
// A shim is made of it too, so it imports little.
// Its tests are those of spoke/place.
package hostfault

import (
	"errors"
	"slices"
	"syscall"
)

var (
	noRoom = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EAGAIN}
	broken = []syscall.Errno{
		syscall.EIO, syscall.ESTALE, syscall.ETIMEDOUT, syscall.ENOTCONN, syscall.ECONNABORTED, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.EREMOTEIO,
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EUCLEAN, syscall.EBADMSG, // the last two: of a damaged file system
	}
)

// NoRoom reports whether err says that this host can open or start nothing now, whatever it is: it tells nothing of a path.
func NoRoom(err error) bool { return oneOf(err, noRoom) }

// Is reports whether err is a fault of this host: neither that nothing is there, nor that it may not be used.
func Is(err error) bool { return NoRoom(err) || oneOf(err, broken) }

func oneOf(err error, list []syscall.Errno) bool {
	return slices.ContainsFunc(list, func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}
