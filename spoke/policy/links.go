package policy

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// linksMost is how many links the kernel follows on one way.
const linksMost = 40

// walk goes an absolute way as the kernel does, through its links, and shows what it meets until show has seen enough. It
// returns where the way ends, "" where it does not.
func walk(way string, show func(at string, mode fs.FileMode) (on bool)) string {
	at := "/"
	rest := strings.Split(way, "/")
	for links := 0; ; {
		info, err := os.Lstat(at)
		if err != nil || !show(at, info.Mode()) {
			return ""
		}
		if info.Mode().Type() == fs.ModeSymlink {
			to, err := os.Readlink(at)
			if links++; err != nil || links > linksMost {
				return ""
			}
			rest = append(strings.Split(to, "/"), rest...)
			if at = filepath.Dir(at); filepath.IsAbs(to) {
				at = "/"
			}
		}
		if len(rest) == 0 {
			return at
		}
		at = filepath.Join(at, cmp.Or(rest[0], "."))
		rest = rest[1:]
	}
}

// areas are directories that agents may write: a symbolic link in one may be theirs.
type areas []string

func (a areas) hold(path string) bool {
	return slices.ContainsFunc(a, func(dir string) bool { return under(path, dir) })
}

// under reports whether path is dir or below it, by their names alone.
func under(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// follow returns where a path leads without symbolic links, and false where an agent may have made it lead there, out of
// what agents may write. A path that leads nowhere is as it was: nothing is behind it.
func (a areas) follow(path string) (real string, ok bool) {
	if !filepath.IsAbs(path) {
		return path, true
	}
	theirs := false
	real = walk(path, func(at string, mode fs.FileMode) bool {
		theirs = theirs || mode.Type() == fs.ModeSymlink && a.hold(filepath.Dir(at))
		return true
	})
	if real == "" {
		return filepath.Clean(path), true
	}
	return real, !theirs || a.hold(real)
}

// written are the directories that the policy lets agents write. Those that hold others come first.
func (p *Policy) written() areas {
	var list areas
	for _, path := range slices.Concat(p.WritePaths, p.each(func(s Settings) []string { return []string{s.Home} }), p.Directories) {
		if path != anything {
			list = append(list, filepath.Clean(path))
		}
	}
	slices.SortFunc(list, func(a, b string) int { return len(a) - len(b) })
	for _, path := range slices.Clone(list) {
		if real, ok := list.follow(path); ok && !list.hold(real) {
			list = append(list, real)
		}
	}
	return list
}

// resolve returns paths of the policy without symbolic links, by their names; a path that an agent may have made lead
// elsewhere is left out.
func (p *Policy) resolve(paths []string) (list []string, names map[string]string) {
	written := p.written()
	names = map[string]string{}
	for _, path := range paths {
		real, ok := written.follow(path)
		if !ok {
			continue
		}
		if list = append(list, real); real != path {
			names[real] = path
		}
	}
	return list, names
}

// LeftOut are the paths that the policy lists and that no agent reaches, as one may have made them lead elsewhere.
func (p *Policy) LeftOut() (list []string) {
	written := p.written()
	for _, l := range p.opens() {
		for _, path := range l.paths {
			if _, ok := written.follow(path); !ok && !slices.Contains(list, path) {
				list = append(list, path)
			}
		}
	}
	return list
}
