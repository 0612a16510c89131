package main

import (
	"strings"
	"unicode/utf8"

	"github.com/spawnmesh/spawnmesh/commands"
)

// checkText refuses a command line with bytes that are no text: JSON carries none, so what
// arrived would be something else.
func checkText(args []string) error {
	for i, arg := range args {
		if utf8.ValidString(arg) {
			continue
		}
		flag, _, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(flag, "-") && i > 0 {
			flag = args[i-1]
		}
		if strings.HasPrefix(flag, "-") && strings.Trim(flag, "-") != "" && utf8.ValidString(flag) {
			return misuse("the value of %s is not UTF-8", flag).Hinting("type it in a terminal whose text is UTF-8")
		}
		return misuse("the argument %q is not UTF-8", commands.Clip(arg)).Hinting("type it in a terminal whose text is UTF-8")
	}
	return nil
}
