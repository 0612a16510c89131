package commands

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// ShellLine writes words as a shell takes them: nothing in them is expanded. A word that does not print on one line is
// written with the escapes of $'...', which bash, zsh, ksh and POSIX of 2024 read.
func ShellLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		switch {
		case plainWord.MatchString(w):
			quoted[i] = w
		case strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }):
			quoted[i] = "$'" + escaped(w) + "'"
		default:
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// Line is a command line of this program, as a shell reads it. Who shows it to a person adds which instance is asked.
func Line(words ...string) string { return ShellLine(append([]string{"spawnmesh"}, words...)) }

// escaped is w between $' and ', with three octal digits for each byte that does not print: no digit behind them is taken for one.
func escaped(w string) string {
	var b strings.Builder
	for i, r := range w {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\'': // by its number: a shell that does not know $'...' must not find the end of the quotes here
			b.WriteString(`\047`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r) && r != unicode.ReplacementChar:
			b.WriteRune(r)
		case r == unicode.ReplacementChar && !strings.HasPrefix(w[i:], string(r)): // a byte that is no text
			fmt.Fprintf(&b, `\%03o`, w[i])
		default:
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		}
	}
	return b.String()
}
