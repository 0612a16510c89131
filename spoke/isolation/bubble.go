package isolation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// bubblewrap is the program that makes namespaces for another one, as a user without rights.
const bubblewrap = "bwrap"

// kernelDirs are those of the system that a bubble has of its own.
var kernelDirs = []string{"/proc", "/sys"}

// wrap is what an agent is executed through. It has namespaces of its own: it sees no process but
// its own, no file but the system's and what it reaches, and where it may connect to no port no
// network either. Which ports it connects to is not restricted otherwise.
func (i *Isolation) wrap(own Dirs, r Reach) []string {
	w := []string{i.bubble, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent"}
	if !r.AnyPort && len(r.Ports) == 0 {
		w = append(w, "--unshare-net")
	}
	// Later ones lie on top of earlier ones.
	w = append(w, "--proc", "/proc", "--dev", "/dev", "--ro-bind", "/sys", "/sys")
	for _, path := range systemDirs {
		if !slices.Contains(kernelDirs, path) {
			w = append(w, "--ro-bind-try", path, path)
		}
	}
	w = r.bind(w, "--ro-bind-try", r.Read)
	w = i.bindOpened(w, r, "--ro-bind", r.Program, supervisor.OpenedProgram)
	w = append(w, "--bind", own.Temp, "/tmp")
	w = r.bind(w, "--bind-try", r.Write)
	if w = i.bindOpened(w, r, "--bind", r.Dir, supervisor.OpenedDir); r.Dir != "" {
		w = append(w, "--chdir", r.Dir)
	}
	for _, path := range own.list() {
		w = append(w, "--bind", path, path)
	}
	for _, path := range own.door() {
		w = append(w, "--ro-bind", path, path)
	}
	return append(w, "--remount-ro", "/", "--")
}

// bindOpened adds what was opened for the agent and had a path then; "" = nothing. With a bubblewrap that cannot bind what
// is open it is what has the path by now.
func (i *Isolation) bindOpened(w []string, r Reach, how, path, opened string) []string {
	switch {
	case path == "":
		return w
	case i.bindsOpen:
		return r.names(w, []string{how + "-fd", opened}, path)
	}
	return r.names(w, []string{how, path}, path)
}

// bindsOpen reports whether a bubblewrap binds what is open: version 0.10 does, and some that were mended.
func bindsOpen(program string) bool {
	help, err := exec.Command(program, "--help").Output()
	return err == nil && strings.Contains(string(help), "--ro-bind-fd")
}

// bind adds paths to what a bubble has, by all their names.
func (r Reach) bind(w []string, how string, paths []string) []string {
	for _, path := range paths {
		w = r.names(w, []string{how, path}, path)
	}
	return w
}

// names binds something under all names of its path. A link of a directory of the system is there already.
func (r Reach) names(w, what []string, path string) []string {
	w = append(append(w, what...), path)
	name, ok := r.Names[path]
	if ok && !slices.ContainsFunc(systemDirs, func(dir string) bool { return strings.HasPrefix(name, dir+"/") }) {
		w = append(append(w, what...), name)
	}
	return w
}

// noNamespaces says which setting of the kernel, below dir, keeps users from making namespaces,
// and how that is changed; "" = none does.
func noNamespaces(dir string) string {
	for _, s := range []struct{ name, bad, good string }{
		{"user/max_user_namespaces", "0", "15000"},
		{"kernel/unprivileged_userns_clone", "0", "1"},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "0"},
	} {
		if raw, err := os.ReadFile(filepath.Join(dir, s.name)); err == nil && strings.TrimSpace(string(raw)) == s.bad {
			return fmt.Sprintf("this kernel lets no user make namespaces: run sysctl -w %s=%s", strings.ReplaceAll(s.name, "/", "."), s.good)
		}
	}
	return ""
}
