package commands

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// ShellLine writes words as a POSIX shell takes them. A word that does not print on one line is shown escaped instead.
func ShellLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		switch {
		case plainWord.MatchString(w):
			quoted[i] = w
		case strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsPrint(r) }):
			quoted[i] = strconv.Quote(w)
		default:
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
