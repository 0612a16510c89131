package isolation

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	w = append(w, "--bind", own.Temp, "/tmp")
	w = r.bind(w, "--bind-try", r.Write)
	for _, path := range own.list() {
		w = append(w, "--bind", path, path)
	}
	for _, path := range own.door() {
		w = append(w, "--ro-bind", path, path)
	}
	return append(w, "--remount-ro", "/", "--")
}

// bind adds paths to what a bubble has, by all their names. A link of a directory of the system is
// there already.
func (r Reach) bind(w []string, how string, paths []string) []string {
	for _, path := range paths {
		w = append(w, how, path, path)
		name, ok := r.Names[path]
		if ok && !slices.ContainsFunc(systemDirs, func(dir string) bool { return strings.HasPrefix(name, dir+"/") }) {
			w = append(w, how, path, name)
		}
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
