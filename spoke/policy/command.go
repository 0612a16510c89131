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

// more as the last word of an entry allows any further arguments, or none.
const more = "..."

// A Command is an entry of commands: an exact command line, or one that ends in
// "..." and allows any further arguments, or "*" for every command. It can say
// what environment its agents get.
type Command struct {
	Run      []string `yaml:"run" json:"run"`
	Settings `yaml:",inline"`
	line     int // in the file, from 1; 0 = not known
}

// Line is where the entry stands in its file, from 1; 0 when that is not known.
func (c Command) Line() int { return c.line }

// String writes the entry as it stands in a policy, without its environment.
func (c Command) String() string {
	words := make([]string, len(c.Run))
	for i, w := range c.Run {
		words[i] = w
		if !oneWord(w) {
			words[i] = fmt.Sprintf("%q", w)
		}
	}
	return strings.Join(words, " ")
}

// oneWord reports whether w is one word of an entry written as a text.
func oneWord(w string) bool { return slices.Equal(strings.Fields(w), []string{w}) }

// words are a command line: a text, split at blanks, or a list.
type words []string

func (w *words) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if unmarshal(&text) == nil {
		*w = strings.Fields(text)
		return nil
	}
	var list []string
	if unmarshal(&list) != nil {
		return errors.New("run is a command line: a text, or a list of its words")
	}
	*w = list
	return nil
}

// UnmarshalYAML reads an entry: a command line, or run with its environment.
func (c *Command) UnmarshalYAML(unmarshal func(any) error) error {
	var run words
	if unmarshal(&run) == nil {
		c.Run = run
		return nil
	}
	var entry struct {
		Run      words `yaml:"run"`
		Settings `yaml:",inline"`
	}
	err := unmarshal(&entry)
	c.Run, c.Settings = entry.Run, entry.Settings
	return err
}

// A quoted word is written in quotes: the library leaves some out that matter.
type quoted string

func (q quoted) MarshalYAML() ([]byte, error) { return json.Marshal(string(q)) }

// MarshalYAML writes the shortest form that says the same.
func (c Command) MarshalYAML() (any, error) {
	var run any = quoted(strings.Join(c.Run, " "))
	if slices.ContainsFunc(c.Run, func(w string) bool { return !oneWord(w) }) {
		list := make([]quoted, len(c.Run))
		for i, w := range c.Run {
			list[i] = quoted(w)
		}
		run = list
	}
	if c.Settings.empty() {
		return run, nil
	}
	return struct {
		Run      any `yaml:"run"`
		Settings `yaml:",inline"`
	}{run, c.Settings}, nil
}

// Any reports whether the entry allows every command.
func (c Command) Any() bool { return len(c.Run) == 1 && c.Run[0] == anything }

// open reports whether the entry allows further arguments.
func (c Command) open() bool { return c.Run[len(c.Run)-1] == more }

// fixed are the words that a command line must begin with.
func (c Command) fixed() []string {
	if c.open() {
		return c.Run[:len(c.Run)-1]
	}
	return c.Run
}

// check says what is wrong with the entry, "" when nothing is.
func (c Command) check() string {
	switch {
	case len(c.Run) == 0 || c.Run[0] == "":
		return "an entry of commands is empty; remove it, or name a program"
	case c.Any():
		return ""
	case c.Run[0] == more:
		return `an entry names a program before its ...; write "*" to allow every command`
	case strings.Contains(c.Run[0], "/") && !filepath.IsAbs(c.Run[0]):
		return fmt.Sprintf("program %q is relative: the order would choose the directory it is in; write its whole path", c.Run[0])
	}
	for i, w := range c.Run {
		switch {
		case w == anything:
			return `"*" allows every command and stands alone; write ... at the end to allow any further arguments`
		case w == more && i < len(c.Run)-1:
			return "... stands for any further arguments; it can only be the last word"
		case strings.ContainsRune(w, 0) || !utf8.ValidString(w):
			return fmt.Sprintf("word %d of an entry holds a NUL or is not UTF-8", i+1)
		}
	}
	return ""
}

// fits reports whether the entry allows argv.
func (c Command) fits(argv []string) bool {
	if c.Any() {
		return true
	}
	fixed := c.fixed()
	return slices.Equal(fixed, argv) || c.open() && len(argv) > len(fixed) && slices.Equal(fixed, argv[:len(fixed)])
}

// unfit says why an entry of the same program does not allow argv.
func (c Command) unfit(argv []string) string {
	fixed := c.fixed()
	for i, w := range fixed {
		if i == len(argv) {
			return fmt.Sprintf("%q has to follow", w)
		}
		if w != argv[i] {
			return fmt.Sprintf("argument %d is %q and has to be %q", i, argv[i], w)
		}
	}
	return "further arguments are not allowed, as it does not end in ..."
}

// Match returns the first entry that allows argv.
func (p *Policy) Match(argv []string) (Command, bool) {
	i := slices.IndexFunc(p.Commands, func(c Command) bool { return c.fits(argv) })
	if i < 0 {
		return Command{}, false
	}
	return p.Commands[i], true
}

// Explain says to the host why no entry of commands allows argv: a line for each
// that names its program, and how many name others.
func (p *Policy) Explain(argv []string) []string {
	var list []string
	others := 0
	for _, c := range p.Commands {
		if c.Run[0] != argv[0] {
			others++
			continue
		}
		list = append(list, fmt.Sprintf("line %d, %s: %s", c.line, c, c.unfit(argv)))
	}
	if others > 0 || len(list) == 0 {
		list = append(list, fmt.Sprintf("entries of commands that name other programs: %d", others))
	}
	return list
}
