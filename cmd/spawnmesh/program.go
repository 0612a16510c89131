package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A programOf says which file this program is.
type programOf struct {
	SHA256   string `json:"program_sha256"`
	Platform string `json:"platform"` // that the file is for, as in linux/amd64
}

// thisProgram reads the file that runs, also where another one has its name by now.
func thisProgram() (programOf, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return programOf{}, fmt.Errorf("reading this program: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return programOf{}, fmt.Errorf("reading this program: %w", err)
	}
	return programOf{hex.EncodeToString(sum.Sum(nil)), runtime.GOOS + "/" + runtime.GOARCH}, nil
}

// joining says what to type on the other host. The token is in no command line, which every user
// of that host can read.
func (p programOf) joining(file string) string {
	what, line := "and paste the token when it asks for it", []string{"./spawnmesh", "spoke", "join"}
	if file != "" {
		file = filepath.Base(file)
		what, line = "with "+file+" beside it", append(line, "--token-file", file)
	}
	return fmt.Sprintf("on the other host, where this program is ./spawnmesh (the file for %s), type this line, %s:\n  echo '%s  spawnmesh' | sha256sum -c && %s",
		p.Platform, what, p.SHA256, commands.ShellLine(line))
}
