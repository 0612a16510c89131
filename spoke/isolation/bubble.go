package isolation

import "slices"

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
	for _, path := range slices.Concat(systemDirs, r.Read) {
		if !slices.Contains(kernelDirs, path) {
			w = append(w, "--ro-bind-try", path, path)
		}
	}
	w = append(w, "--bind", own.Temp, "/tmp")
	for _, path := range r.Write {
		w = append(w, "--bind-try", path, path)
	}
	for _, path := range own.list() {
		w = append(w, "--bind", path, path)
	}
	return append(w, "--remount-ro", "/", "--")
}
