package main

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// fileOf returns the file that stream is, or that an answer goes to.
func fileOf(stream any) (*os.File, bool) {
	switch s := stream.(type) {
	case *answer:
		return fileOf(s.to)
	case *sharedErr:
		return fileOf(s.to)
	case sharedOut:
		return fileOf(s.to)
	}
	f, ok := stream.(*os.File)
	return f, ok
}

// terminal reports whether stream is one.
func terminal(stream any) bool {
	f, ok := fileOf(stream)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// A paste that is longer than what a terminal holds comes in parts, with pauses below quiet (in milliseconds).
const quiet, pasteParts = 100, 50

// forgetTyped forgets what was typed at a terminal and not read, and reports whether there is an end to it.
func forgetTyped(stream any) bool {
	f, _ := fileOf(stream)
	fd := int(f.Fd())
	for range pasteParts {
		if err := unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH); err != nil {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, quiet)
		if n == 0 && !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
	return false
}

// columnsOf returns the width of the terminal w, 0 when it is none.
func columnsOf(w io.Writer) int {
	f, ok := fileOf(w)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
