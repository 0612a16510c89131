package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// The wildcards of a pattern. Each is a whole word; \* in a word is a star.
const (
	one  = "*"   // exactly one argument, whatever it says
	rest = "**"  // any further arguments, or none, at the end
	dots = "..." // the same, as policies wrote it first
)

// A Pattern is a whole command line: an order fits when it has the same words, where
// "*" is exactly one argument and "**" at the end is any more or none. "*" alone is
// every command.
type Pattern []string

// String writes the pattern as it stands in a policy.
func (p Pattern) String() string {
	list := make([]string, len(p))
	for i, w := range p {
		list[i] = w
		if !oneWord(w) {
			list[i] = fmt.Sprintf("%q", w)
		}
	}
	return strings.Join(list, " ")
}

// oneWord reports whether w is one word of a pattern written as a text.
func oneWord(w string) bool { return slices.Equal(strings.Fields(w), []string{w}) }

// UnmarshalYAML reads a text, split at blanks, or a list of words.
func (p *Pattern) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	var list []string
	if unmarshal(&text) == nil {
		list = strings.Fields(text)
	} else if unmarshal(&list) != nil {
		return errors.New("run is a command line: a text, or a list of its words")
	}
	if last := len(list) - 1; last > 0 && list[last] == dots {
		list[last] = rest // two spellings of a policy have one version
	}
	*p = list
	return nil
}

// A quoted word is written in quotes: the library leaves some out that matter.
type quoted string

func (q quoted) MarshalYAML() ([]byte, error) { return json.Marshal(string(q)) }

// yaml returns the pattern as it is written: a text, or a list where that is not clear.
func (p Pattern) yaml() any {
	if !slices.ContainsFunc(p, func(w string) bool { return !oneWord(w) }) {
		return quoted(strings.Join(p, " "))
	}
	list := make([]quoted, len(p))
	for i, w := range p {
		list[i] = quoted(w)
	}
	return list
}

// open reports whether the pattern allows further arguments.
func (p Pattern) open() bool { return p[len(p)-1] == rest }

// fixed are the words that stand for one argument each.
func (p Pattern) fixed() Pattern {
	if p.open() {
		return p[:len(p)-1]
	}
	return p
}

// wild reports whether an order chooses anything at word i or behind it.
func (p Pattern) wild(i int) bool {
	return slices.ContainsFunc(p[min(i, len(p)):], func(w string) bool { return w == one || w == rest })
}

// word is what word i means where it is no wildcard.
func (p Pattern) word(i int) string { return strings.ReplaceAll(p[i], `\*`, "*") }

// check says what is wrong with the pattern, "" when nothing is.
func (p Pattern) check() string {
	switch {
	case len(p) == 0 || p[0] == "":
		return "an entry of commands is empty; remove it, or name a program"
	case len(p) == 1 && p[0] == one:
		return ""
	case p[0] == one || p[0] == rest || p[0] == dots:
		return fmt.Sprintf(`an entry names a program before its %s; write "*" alone to allow every command`, p[0])
	case strings.Contains(p[0], "/") && !filepath.IsAbs(p[0]):
		return fmt.Sprintf("program %q is relative: the order would choose the directory it is in; write its whole path", p[0])
	}
	for i, w := range p {
		switch {
		case (w == rest || w == dots) && i < len(p)-1:
			return w + " stands for any further arguments; it can only be the last word; * is exactly one argument"
		case w != one && w != rest && strings.Contains(strings.ReplaceAll(w, `\*`, ""), "*"):
			return fmt.Sprintf(`word %d, %q: * is a whole argument and cannot be a part of one; write \* for a star`, i+1, w)
		case strings.ContainsRune(w, 0) || !utf8.ValidString(w):
			return fmt.Sprintf("word %d of an entry holds a NUL or is not UTF-8", i+1)
		}
	}
	return ""
}

// unfit says why the pattern does not allow the arguments of argv, "" when it does.
// The program is not its matter.
func (p Pattern) unfit(argv []string) string {
	fixed := p.fixed()
	for i := 1; i < len(fixed); i++ {
		switch w := fixed.word(i); {
		case i >= len(argv) && fixed[i] == one:
			return "another argument has to follow, for its *"
		case i >= len(argv):
			return fmt.Sprintf("%q has to follow", w)
		case fixed[i] != one && w != argv[i]:
			return fmt.Sprintf("argument %d is %q and has to be %q", i, argv[i], w)
		}
	}
	if len(argv) > len(fixed) && !p.open() {
		return "further arguments are not allowed, as it does not end in **"
	}
	return ""
}
