package worktree

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// nameMost is how long a path may be: Linux opens none that is longer, so no working tree could be made of it.
const (
	nameMost  = 4000
	depthMost = 1000 // git has bounds too: 2,048 since 2.43
)

// short are names that Windows may give to .git and its files.
var short = regexp.MustCompile(`^gi[0-9a-z]{1,4}~[0-9]`)

// holdable reports whether git takes an entry of a tree by this name: none that any system could take for .git.
func holdable(name string) bool {
	if onMac(name) == ".git" {
		return false
	}
	for _, part := range strings.Split(name, `\`) {
		if short.MatchString(strings.ToLower(part)) || onWindows(part) == ".git" {
			return false
		}
	}
	return name != "" && name != "." && name != ".."
}

// judged reports whether git looks into a file of this name, and may refuse the tree for what it says.
func judged(name string) bool {
	return opens(name, ".gitmodules", ".gitattributes", ".gitignore", ".mailmap")
}

// onlyFile reports whether git refuses a directory of this name.
func onlyFile(name string) bool { return opens(name, ".gitmodules", ".gitattributes") }

// opens reports whether some system takes a name for one of those that are known.
func opens(name string, known ...string) bool {
	if slices.Contains(known, onMac(name)) {
		return true
	}
	return slices.ContainsFunc(strings.Split(name, `\`), func(part string) bool { return slices.Contains(known, onWindows(part)) })
}

// onWindows is what a name opens there: no case, nothing behind a colon, no dots or spaces at its end.
func onWindows(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(name), ":")
	return strings.TrimRight(name, " .")
}

// onMac is what a name opens there: no case, none of some characters. Git reads it until it is no UTF-8.
func onMac(name string) string {
	var out strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && size <= 1 {
			break
		}
		name = name[size:]
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		default:
			out.WriteRune(r)
		}
	}
	return strings.ToLower(out.String())
}
