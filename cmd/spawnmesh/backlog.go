package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) backlogCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "backlog", Short: "Keep tasks for whoever claims them, with or without a running instance",
		Long: `Keep tasks for whoever claims them, with or without a running instance.

A task is claimed by one worker at a time. The claim has a fence, which the worker
shows with everything it says of the task, and lasts until its time is over. A
fence that no longer holds changes nothing. Without a fence a word is yours, the
operator's, and the audit says so.

A task is named by its key, by its short id as a list shows it, or four or more
characters that no other begins with, or by its whole id.`,
		Example: `  spawnmesh backlog create --id A1 --title schema --priority 5
  spawnmesh backlog create --id A2 --title service --depends-on A1
  spawnmesh backlog claim --owner worker-1 --ttl 600 --json
  spawnmesh backlog complete --id A1
  spawnmesh backlog why A2`,
	}
	a.inWorkspace(c)
	c.AddCommand(a.backlogCreateCommand(), a.backlogListCommand(), a.backlogShowCommand(), a.backlogStatsCommand(), a.backlogWhyCommand(), a.backlogAuditCommand(),
		a.backlogClaimCommand(), a.backlogRenewCommand(), a.backlogReclaimCommand(), a.backlogGrantCommand(),
		a.backlogArchiveCommand(), a.backlogUnarchiveCommand(),
		a.backlogLinkCommand("link", "Make one task depend on another"), a.backlogLinkCommand("unlink", "End a dependency"))
	for _, v := range backlogVerbs {
		c.AddCommand(a.backlogVerbCommand(v))
	}
	return c
}

// inWorkspace lets c and the commands below it name their workspace.
func (a *app) inWorkspace(c *cobra.Command) {
	c.PersistentFlags().StringVar(&a.workspace, "workspace", backlog.MainWorkspace, "in the workspace `NAME`")
}

// defaultOwner is who claims when nobody is named: this user on this host.
func defaultOwner() string {
	name := actor()
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

// oneName returns what a command acts on, given after it or with a flag.
func oneName(c *cobra.Command, flag, named string, args []string) (string, error) {
	given := ""
	if len(args) > 0 {
		given = args[0]
	}
	if named != "" && given != "" && named != given {
		return "", misuse("%s names two: %q, and --%s %q", nameOf(c), given, flag, named).Hinting("name one of them")
	}
	if named != "" {
		return named, checkName(c, "ID", named)
	}
	return given, nil
}

// aTask is oneName for what needs a task.
func aTask(c *cobra.Command, named string, args []string) (string, error) {
	ref, err := oneName(c, "id", named, args)
	if err == nil && ref == "" {
		err = misuse("%s names no task", nameOf(c)).Hinting("give its key or id: %s ID", c.CommandPath())
	}
	return ref, err
}

// seconds is a time flag that takes a bare number as seconds, as in --ttl 600.
type seconds time.Duration

// String writes the time as [days] does.
func (s *seconds) String() string { return (*days)(s).String() }

// Type names the value in help texts.
func (s *seconds) Type() string { return "DURATION" }

// Set reads the value of a flag.
func (s *seconds) Set(text string) error {
	number := text
	if strings.Trim(text, "0123456789") == "" {
		number += "s"
	}
	var d days
	if err := d.Set(number); err != nil || d == 0 {
		return misuse("%q is not a time above 0, in seconds or such as 90s, 15m, 2h", text)
	}
	*s = seconds(d)
	return nil
}

// quantities is a repeatable flag of amounts by dimension: usd=1.5,tokens=20000.
type quantities map[string]backlog.Amount

// String writes nothing: there is no default.
func (q *quantities) String() string { return "" }

// Type names the value in help texts.
func (q *quantities) Type() string { return "WHAT=AMOUNT" }

// Set adds what one flag says.
func (q *quantities) Set(text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		name, number, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return misuse("%q is not an amount such as usd=1.5 or tokens=20000", pair)
		}
		amount, err := backlog.ParseAmount(number)
		if err != nil {
			return misuse("%q: %v", pair, err)
		}
		if _, twice := (*q)[name]; twice {
			return misuse("%q is given twice", name)
		}
		if *q == nil {
			*q = quantities{}
		}
		(*q)[name] = amount
	}
	return nil
}

// asked are the amounts as the API has them.
func (q quantities) asked() api.Amounts {
	var m api.Amounts
	for name, amount := range q {
		if m == nil {
			m = api.Amounts{}
		}
		m[name] = json.Number(amount.String())
	}
	return m
}

// textOf writes amounts for people: "1.5 usd, 20000 tokens".
func textOf(m map[string]backlog.Amount) string {
	var list []string
	for _, name := range sortedKeys(m) {
		list = append(list, m[name].String()+" "+name)
	}
	return strings.Join(list, ", ")
}

// standing says in a few words how a task stands.
func standing(t backlog.Task) string {
	switch {
	case t.State == commands.Queued && t.Unmet == 1:
		return "waits for another task"
	case t.State == commands.Queued && t.Unmet > 1:
		return "waits for other tasks"
	case t.State == commands.Queued && t.NotBefore != nil && t.NotBefore.After(time.Now()):
		return "is not ready before " + clock(t.NotBefore)
	case t.State == commands.Queued:
		return "is ready"
	case t.Owner != "":
		return "is claimed by " + t.Owner
	case t.Reason != "" && t.Reason != commands.Operator && t.Reason != commands.CancelRequested:
		return "is " + string(t.State) + " (" + string(t.Reason) + ")"
	}
	return "is " + string(t.State)
}

// clock is a moment for people, in their own time.
func clock(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// sortedKeys lists what m is keyed by, in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
