package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

type Exec struct {
	Argv    []string
	Dir     string
	Home    string
	Path    string
	Env     map[string]string
	Task    string
	Attempt int
}

func (e Exec) Spec() (supervisor.Spec, error) {
	prog := e.Argv[0]
	if !strings.Contains(prog, "/") {
		for _, d := range filepath.SplitList(e.Path) {
			if i, err := os.Stat(filepath.Join(d, prog)); err == nil && i.Mode()&0o111 != 0 && !i.IsDir() {
				prog = filepath.Join(d, prog)
				break
			}
		}
		if !filepath.IsAbs(prog) {
			return supervisor.Spec{}, fmt.Errorf("%s: not found on PATH", prog)
		}
	}
	argv := append([]string{prog}, e.Argv[1:]...)
	env := []string{"PATH=" + e.Path, "HOME=" + e.Home, "LANG=C.UTF-8"}
	for k, v := range e.Env {
		env = append(env, k+"="+v)
	}
	return supervisor.Spec{Argv: argv, Env: env, Dir: e.Dir}, nil
}
