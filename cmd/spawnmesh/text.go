package main

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
)

// checkNames refuses what is nobody's name, where the first argument or all are names.
func checkNames(c *cobra.Command, args []string) error {
	_, wants, _ := strings.Cut(c.Use, " ")
	first, more, _ := strings.Cut(strings.Trim(wants, "[]"), " ")
	if !slices.Contains([]string{"ID", "ID...", "NAME", "ID|NAME", "KIND"}, first) {
		return nil
	}
	if more != "" {
		args = args[:min(len(args), 1)]
	}
	for _, arg := range args {
		if err := checkName(c, wants, arg); err != nil {
			return err
		}
	}
	return nil
}

// checkName refuses what is nobody's name. A name is a part of the path of a request, in which
// these three would ask for something else.
func checkName(c *cobra.Command, wants, name string) error {
	if name == "" || name == "." || name == ".." {
		return misuse("%s takes %s, and %q is none", nameOf(c), wants, name).Hinting("see: %s --help", c.CommandPath())
	}
	return nil
}

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
