package main

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// pager is the command that a list goes through which is longer than the screen; "" for none. An
// empty variable, or cat, is a wish for none.
func (a *app) pager(lines int) string {
	screen, ok := fileOf(a.out)
	if a.noPager || !ok || !terminal(a.out) {
		return ""
	}
	size, err := unix.IoctlGetWinsize(int(screen.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Row == 0 || lines < int(size.Row) {
		return ""
	}
	command := cmp.Or(a.variable("SPAWNMESH_PAGER"), a.variable("PAGER"))
	if _, err := exec.LookPath("less"); command == "" && err == nil {
		command = "less -FRX"
	}
	if strings.TrimSpace(command) == "cat" {
		return ""
	}
	return command
}

// What a shell ends with that cannot run a command.
const notExecutable, notFound = 126, 127

// page shows text through a pager. One that does not start leaves the text to the terminal; one
// that ends early has shown what its reader wanted.
func (a *app) page(command string, text []byte) error {
	screen, _ := fileOf(a.out)
	c := exec.Command("sh", "-c", command)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(text), screen, screen
	c.Env = os.Environ()
	if a.variable("LESS") == "" {
		c.Env = append(c.Env, "LESS=FRX")
	}
	_ = c.Run() // a reader who ends it is no error
	if code := c.ProcessState.ExitCode(); c.ProcessState == nil || code == notExecutable || code == notFound {
		_, err := a.out.Write(text)
		return err
	}
	return nil
}
