package worktree

import (
	"fmt"
	"regexp"
	"strings"
)

// Bounds of rules. What an agent has written there costs no more than this.
const (
	rulesMost    = 128 << 10     // bytes of one .gitignore
	lineMost     = 4 << 10       // bytes of one line of it
	chainMost    = 1 << 20       // bytes of all that apply to one file
	patternsMost = 4096          // that apply to one file
	stepsMost    = 5_000_000_000 // characters of patterns by characters of names, of one walk
)

// rules are those of a .gitignore, and of those above it, as gitignore(5) has them. They are matched here, in a time that grows with
// their length alone: git's own way takes exponential time for some.
type rules struct {
	above    *rules
	base     string // the directory, "" or with a slash at its end
	patterns []pattern
	count    int
	bytes    int    // of their text
	steps    *int64 // left
}

type pattern struct {
	negate, dirOnly, anywhere bool
	literal                   string // where nothing in it is special
	suffix                    string // where it is * and this
	re                        *regexp.Regexp
	size                      int64
}

// under is the rules of a directory below, which has a .gitignore of its own.
func (r *rules) under(base string, text string) *rules {
	below := &rules{above: r, base: base, count: r.count, bytes: r.bytes + len(text), steps: r.steps}
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		if p, ok := parsePattern(strings.TrimSuffix(line, "\r")); ok {
			below.patterns = append(below.patterns, p)
			below.count++
		}
	}
	return below
}

// ignores reports whether a path is to be left out, as far as its own name goes.
func (r *rules) ignores(path string, dir bool) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	for ; r != nil; r = r.above {
		for i := len(r.patterns) - 1; i >= 0; i-- {
			p := &r.patterns[i]
			subject := name
			if !p.anywhere {
				subject = path[len(r.base):]
			}
			if *r.steps > 0 && (dir || !p.dirOnly) && p.matches(subject, r.steps) {
				return !p.negate
			}
		}
	}
	return false
}

func (p *pattern) matches(subject string, steps *int64) bool {
	switch {
	case p.re != nil:
		*steps -= p.size * int64(len(subject)+1)
		return p.re.MatchString(latin(subject))
	case p.suffix != "":
		*steps--
		return strings.HasSuffix(subject, p.suffix) && (p.anywhere || !strings.Contains(subject[:len(subject)-len(p.suffix)], "/"))
	}
	*steps--
	return subject == p.literal
}

// latin makes a character of each byte, as git compares them.
func latin(text string) string {
	for i := range len(text) {
		if text[i] >= 0x80 {
			runes := make([]rune, len(text))
			for i := range len(text) {
				runes[i] = rune(text[i])
			}
			return string(runes)
		}
	}
	return text
}

func parsePattern(line string) (p pattern, ok bool) {
	if strings.HasPrefix(line, "#") {
		return p, false
	}
	line = trimSpaces(line)
	line, p.negate = strings.CutPrefix(line, "!")
	line, p.dirOnly = strings.CutSuffix(line, "/")
	p.anywhere = !strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return p, false
	}
	p.size = int64(len(line))
	special := func(text string) bool { return strings.ContainsAny(text, `*?[\`) }
	if !special(line) {
		p.literal = line
	} else if line[0] == '*' && len(line) > 1 && !special(line[1:]) {
		p.suffix = line[1:]
	} else if expr, ok := translatePath(line, p.anywhere); ok {
		var err error
		if p.re, err = regexp.Compile(`(?s)\A` + expr + `\z`); err != nil {
			return p, false
		}
	} else {
		return p, false // it matches nothing
	}
	return p, true
}

// trimSpaces takes spaces away at the end of a line that no backslash stands before.
func trimSpaces(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
		} else if line[i] == ' ' {
			continue
		}
		end = min(i+1, len(line))
	}
	return line[:end]
}

// translatePath is translate for a pattern of paths, of which git compares what stands before the first special character by itself: for
// the rest a pattern begins there, and "a**/b" matches "ab", too.
func translatePath(line string, anywhere bool) (string, bool) {
	begin := 0
	if !anywhere {
		begin = strings.IndexAny(line, `*?[\`)
	}
	before, _ := translate(line[:begin])
	rest, ok := translate(line[begin:])
	return before + rest, ok
}

// translate makes a regular expression of a pattern. A pattern without an end, as "[a", matches nothing.
func translate(text string) (string, bool) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			if i++; i == len(text) {
				return "", false
			}
			out.WriteString(char(text[i]))
		case '?':
			out.WriteString("[^/]")
		case '*':
			begin := i
			for i+1 < len(text) && text[i+1] == '*' {
				i++
			}
			rest := text[i+1:]
			whole := i > begin && (begin == 0 || text[begin-1] == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
			switch {
			case whole && strings.HasPrefix(rest, "/"):
				out.WriteString("(?:.*/)?")
				i++
			case whole:
				out.WriteString(".*")
			default:
				out.WriteString("[^/]*")
			}
		case '[':
			set, end, ok := class(text, i+1)
			if !ok {
				return "", false
			}
			out.WriteString(set)
			i = end
		default:
			out.WriteString(char(c))
		}
	}
	return out.String(), true
}

func char(c byte) string { return fmt.Sprintf(`\x{%x}`, c) }

// class reads what stands in brackets, from behind the first to the last, at end.
func class(text string, i int) (expr string, end int, ok bool) {
	var set [256]bool
	negate := i < len(text) && (text[i] == '!' || text[i] == '^')
	if negate {
		i++
	}
	last := -1 // the character that a range may begin with
	for first := true; ; first = false {
		if i >= len(text) {
			return "", 0, false
		}
		c := text[i]
		switch {
		case c == ']' && !first:
			return expression(set, negate), i, true
		case c == '[' && i+1 < len(text) && text[i+1] == ':':
			name, _, found := strings.Cut(text[i+2:], ":]")
			members, known := named[name]
			if !found || strings.Contains(name, "]") || !known {
				return "", 0, false
			}
			for c := range 256 {
				set[c] = set[c] || members(byte(c))
			}
			i += len(name) + 4
			last = -1
			continue
		case c == '-' && last >= 0 && i+1 < len(text) && text[i+1] != ']':
			i++
			if text[i] == '\\' {
				if i++; i >= len(text) {
					return "", 0, false
				}
			}
			for c := last; c <= int(text[i]); c++ {
				set[c] = true
			}
			last = -1
			i++
			continue
		case c == '\\':
			if i++; i >= len(text) {
				return "", 0, false
			}
			c = text[i]
		}
		set[c] = true
		last = int(c)
		i++
	}
}

// expression is a set of characters; none of them is a slash.
func expression(set [256]bool, negate bool) string {
	var out strings.Builder
	in := func(c int) bool { return c < len(set) && c != '/' && set[c] != negate }
	for c := 0; c < len(set); c++ {
		from := c
		for in(c) && in(c+1) {
			c++
		}
		if in(from) {
			out.WriteString(char(byte(from)))
		}
		if c > from {
			out.WriteString("-" + char(byte(c)))
		}
	}
	if out.Len() == 0 {
		return `[^\x{0}-\x{10ffff}]`
	}
	return "[" + out.String() + "]"
}

func between(c, from, to byte) bool { return c >= from && c <= to }
func upper(c byte) bool             { return between(c, 'A', 'Z') }
func lower(c byte) bool             { return between(c, 'a', 'z') }
func digit(c byte) bool             { return between(c, '0', '9') }
func alnum(c byte) bool             { return upper(c) || lower(c) || digit(c) }

// named are the classes that have names.
var named = map[string]func(byte) bool{
	"alnum": alnum, "digit": digit, "lower": lower, "upper": upper,
	"alpha":  func(c byte) bool { return upper(c) || lower(c) },
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
	"graph":  func(c byte) bool { return between(c, '!', '~') },
	"print":  func(c byte) bool { return between(c, ' ', '~') },
	"punct":  func(c byte) bool { return between(c, '!', '~') && !alnum(c) },
	"space":  func(c byte) bool { return c == ' ' || between(c, '\t', '\r') },
	"xdigit": func(c byte) bool { return digit(c) || between(c, 'a', 'f') || between(c, 'A', 'F') },
}
