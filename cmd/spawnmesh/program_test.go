package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A typist sits at a terminal with a shell in a directory.
type typist struct {
	t        *testing.T
	keyboard *os.File
	seen     string
}

// sitsDown starts the shell, which has environ.
func sitsDown(t *testing.T, dir string, environ []string) *typist {
	t.Helper()
	keyboard, screen := aTerminal(t, 80)
	ctx, done := context.WithTimeout(t.Context(), time.Minute) // then what was read is said
	t.Cleanup(done)
	sh := exec.CommandContext(ctx, "sh")
	sh.Dir, sh.Env = dir, append(environ, "PS1=ready> ")
	sh.Stdin, sh.Stdout, sh.Stderr = screen, screen, screen
	sh.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, sh.Start())
	require.NoError(t, screen.Close(), "reading ends with the shell")
	t.Cleanup(func() { _ = sh.Wait() })
	return &typist{t: t, keyboard: keyboard}
}

// reads waits for text, and forgets what was before.
func (p *typist) reads(text string) {
	p.t.Helper()
	for some := make([]byte, 4096); !strings.Contains(p.seen, text); {
		n, err := p.keyboard.Read(some)
		require.NoError(p.t, err, "%q", p.seen)
		p.seen += string(some[:n])
	}
	_, p.seen, _ = strings.Cut(p.seen, text)
}

func (p *typist) types(line string) {
	p.t.Helper()
	_, err := p.keyboard.WriteString(line + "\n")
	require.NoError(p.t, err)
}

// The line that an invite prints works as it is pasted, runs no other program than the one that
// the hub's operator has, and has no token.
func TestTheLineOfAnInviteIsPasted(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	h, dir := hand{t: t, dir: m.Hub.Dir}, m.Dir
	raw, err := os.ReadFile(program)
	require.NoError(t, err)
	copied := filepath.Join(dir, "spawnmesh")
	require.NoError(t, os.WriteFile(copied, raw, 0o755))
	lineOf := func(s said) string {
		require.Zero(t, s.code, s.err)
		line := regexp.MustCompile(`(?m)^  (echo .*)$`).FindStringSubmatch(s.err)
		require.NotNil(t, line, s.err)
		require.NotContains(t, s.err, "amj1")
		require.Contains(t, s.err, "(the file for "+runtime.GOOS+"/"+runtime.GOARCH+")")
		return line[1]
	}
	asked := h.run("", "invite", "--name", "attic")
	file := filepath.Join(dir, "a token")
	inFile := lineOf(h.run("", "invite", "--name", "loft", "--out", file))
	where := func(name string) []string {
		return append(h.command(t.Context()).Env, "SPAWNMESH_DATA_DIR="+filepath.Join(dir, name))
	}

	p := sitsDown(t, dir, where("attic"))
	p.reads("ready> ")
	p.types(lineOf(asked))
	p.reads("spawnmesh: OK")
	p.reads("paste the token here")
	p.types(strings.TrimSpace(asked.out))
	p.reads("join? [y/N] ")
	p.types("y")
	p.reads("joined hub lab as attic")
	p.reads("ready> ")
	p.types("SPAWNMESH_DATA_DIR=" + filepath.Join(dir, "loft"))
	p.types(inFile)
	p.reads("join? [y/N] ")
	p.types("y")
	p.reads("joined hub lab as loft")
	p.reads("ready> ")
	require.NoError(t, os.WriteFile(copied, append(raw, 0), 0o755))
	p.types(inFile + " || echo not $((40+2))")
	p.reads("not 42")
	require.NotContains(t, p.seen, "paste")
	p.types("exit")

	var v struct {
		ProgramSHA256 string `json:"program_sha256"`
		Platform      string `json:"platform"`
		Token         string `json:"token"`
	}
	h.read(&v, 0, "invite", "--name", "barn")
	require.Contains(t, inFile, "'"+v.ProgramSHA256+"  spawnmesh'")
	require.Equal(t, runtime.GOOS+"/"+runtime.GOARCH, v.Platform)
	require.NotEmpty(t, v.Token)
}
