package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
)

// explain completes root with the commands that tell about commands, and gives
// what cobra says about a wrong command line our words.
func (a *app) explain(root *cobra.Command) {
	columns := widestHelp
	if here := a.helpColumns(); here > 0 {
		columns = min(columns, here)
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", columns)))
	root.SetHelpFunc(a.help)
	root.SetHelpCommand(helpCommand(root))
	root.SetHelpCommandGroupID("help")
	root.SetCompletionCommandGroupID("help")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpFlag()
	for _, c := range root.Commands() {
		reword(c)
	}
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND...]", Short: "Explain a command", Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 && c.HasAvailableSubCommands() {
				return unknownCommand(c, rest[0])
			}
			return c.Help()
		},
	}
}

// reword gives c and the commands below it our words for wrong arguments.
func reword(c *cobra.Command) {
	for _, sub := range c.Commands() {
		reword(sub)
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args, c.RunE = cobra.ArbitraryArgs, wantsCommand
		return
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if check(c, args) != nil {
				return wrongArguments(c, args)
			}
			return checkNames(c, args)
		}
	}
}

// nameOf is a command's name as it is typed after the program's.
func nameOf(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

// wantsCommand is what a command does that only groups others.
func wantsCommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(c, args[0])
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return misuse("%s needs a command: %s", nameOf(c), strings.Join(names, ", ")).Hinting("see: %s --help", c.CommandPath())
}

func unknownCommand(c *cobra.Command, name string) *commands.Refused {
	r := misuse("there is no command %q", strings.TrimPrefix(c.CommandPath()+" "+name, c.Root().Name()+" "))
	if like := commandsLike(c, name); len(like) > 0 {
		return r.Hinting("did you mean: %s %s", c.CommandPath(), strings.Join(like, ", or: "+c.CommandPath()+" "))
	}
	return r.Hinting("see: %s --help", c.CommandPath())
}

func wrongArguments(c *cobra.Command, args []string) *commands.Refused {
	_, wants, _ := strings.Cut(c.Use, " ")
	if wants == "" || strings.HasPrefix(wants, "-") {
		wants = "no arguments"
	}
	got := "none"
	if len(args) > 0 {
		got = strconv.Quote(strings.Join(args, " "))
	}
	return misuse("%s takes %s and got %s", nameOf(c), wants, got).Hinting("see: %s --help", c.CommandPath())
}

// flagError says in our words that a flag cannot be read.
func flagError(c *cobra.Command, err error) error {
	text := err.Error()
	if flag, ok := strings.CutPrefix(text, "unknown flag: "); ok {
		r := misuse("%s has no flag %s", nameOf(c), flag)
		if like := flagsLike(c, flag); len(like) > 0 {
			return r.Hinting("did you mean: %s", strings.Join(like, ", or: "))
		}
		return r.Hinting("see: %s --help", c.CommandPath())
	} else if _, flag, ok := strings.Cut(text, "unknown shorthand flag: "); ok { // 'x' in -x
		_, flag, _ = strings.Cut(flag, " in ")
		text = nameOf(c) + " has no flag " + flag
	} else if flag, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		text = flag[strings.LastIndex(flag, " ")+1:] + " needs a value" // --output, or 'o' in -o
	} else if what, why, ok := strings.Cut(text, " flag: "); ok { // invalid argument "x" for "-o, --output" flag: why
		if n, ok := errors.AsType[*strconv.NumError](err); ok && n.Func == "ParseBool" {
			why = fmt.Sprintf("%q is neither true nor false", n.Num)
		} else if ok {
			why = fmt.Sprintf("%q is not a whole number", n.Num)
		}
		_, flag, _ := strings.Cut(what, " for ")
		text = strings.Trim(flag, `"`) + ": " + why
	}
	return misuse("%s", text).Hinting("see: %s --help", c.CommandPath())
}

// rephrase puts into our words what cobra finds before a command of ours runs.
func rephrase(root *cobra.Command, err error) error {
	var name, path string
	if n, _ := fmt.Sscanf(err.Error(), "unknown command %q for %q", &name, &path); n == 2 {
		return unknownCommand(root, name)
	}
	return err
}

// asksForJSON reads the output format from arguments that were not parsed to
// their end.
func asksForJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "-ojson", "-ondjson", "-o=json", "-o=ndjson", "--output=json", "--output=ndjson":
			return true
		case "-o", "--output":
			if i+1 < len(args) && (args[i+1] == "json" || args[i+1] == "ndjson") {
				return true
			}
		}
	}
	return false
}
