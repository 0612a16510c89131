package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (a *app) backlogWhyCommand() *cobra.Command {
	var id string
	c := &cobra.Command{
		Use: "why [ID]", Short: "Say what keeps a task from being claimed", Args: cobra.MaximumNArgs(1),
		Long: `Say what keeps a task from being claimed, since when, and what to do about it: all
of it, in the order in which a claim asks.`,
		Example: "  spawnmesh backlog why A2",
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := aTask(c, id, args)
			if err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				w, err := control.Answer(c.API().ExplainBacklogTaskWithResponse(ctx, a.workspace, ref))
				if err != nil {
					return err
				}
				return a.printWhy(whyFrom(w))
			})
		},
	}
	c.Flags().StringVar(&id, "id", "", "the task `ID`; the same as without --id")
	return c
}

func (a *app) printWhy(w backlog.Why) error {
	if !a.forPeople() {
		return a.print(w, []any{w}, table{names: []string{w.Task.Ref()}})
	}
	name := printable(w.Task.Name())
	switch {
	case w.Claimable:
		fmt.Fprintf(a.out, "%s can be claimed\n", name)
	case len(w.Reasons) == 0:
		fmt.Fprintf(a.out, "%s %s\n", name, printable(standing(w.Task)))
	case onlyClaimers(w):
		fmt.Fprintf(a.out, "%s is ready and nobody asks for it:\n", name)
	default:
		fmt.Fprintf(a.out, "%s cannot be claimed:\n", name)
	}
	a.printReasons(w.Reasons)
	if len(w.By) > 0 && w.Task.State == commands.Queued {
		fmt.Fprintf(a.out, "  who claimed lately and could have it: %s\n", printable(ownersOf(w.By)))
	}
	return nil
}

// printReasons shows each reason with since when it holds, and what would change it.
func (a *app) printReasons(list []commands.WhyReason) {
	for _, r := range list {
		fmt.Fprintf(a.out, "  %s\n", printable(r.Text+span(r.Since, r.Until)))
		if r.Fix != "" {
			fmt.Fprintf(a.out, "      %s\n", printable(a.pasted(r.Fix)))
		}
	}
}

// pasted is a fix of this instance as it can be pasted: a command line in it says which instance it is for. Its words are
// quoted already. What is for another host, or somebody else's words, stays as it is.
func (a *app) pasted(fix string) string {
	at := strings.Index(": "+fix, ": spawnmesh ")
	if at < 0 || strings.HasSuffix(fix[:at], commands.OnItsHost) || strings.Contains(fix[:at], " says: ") {
		return fix
	}
	words := strings.TrimPrefix(fix[at:], "spawnmesh ")
	command, _, _ := strings.Cut(words, " ")
	return fix[:at] + a.quoted(command, words)
}

// ownersOf names claimers, some of many.
func ownersOf(list []backlog.Claimer) string {
	const most = 5
	var names []string
	for _, c := range list[:min(len(list), most)] {
		names = append(names, c.Owner)
	}
	if len(list) > most {
		names = append(names, fmt.Sprintf("and %d more", len(list)-most))
	}
	return strings.Join(names, ", ")
}

// onlyClaimers reports whether nothing keeps the task but that nobody asks for it. A claim without an end has run out.
func onlyClaimers(w backlog.Why) bool {
	return !slices.ContainsFunc(w.Reasons, func(r commands.WhyReason) bool {
		return r.Code != commands.CauseCapability && (r.Code != commands.CauseLease || r.Until != nil)
	})
}

// span says since when and until when something holds.
func span(since, until *time.Time) string {
	var list []string
	if since != nil {
		list = append(list, "since "+clock(since))
	}
	if until != nil {
		list = append(list, "until "+clock(until))
	}
	if len(list) == 0 {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

func (a *app) backlogLinkCommand(verb, short string) *cobra.Command {
	var from, to string
	c := &cobra.Command{
		Use: verb, Short: short, Args: cobra.NoArgs,
		Example: "  spawnmesh backlog " + verb + " --from A2 --to A1",
		RunE: func(c *cobra.Command, _ []string) error {
			if from == "" || to == "" {
				return misuse("backlog %s needs --from and --to", verb).Hinting("the task --from depends on the task --to")
			}
			from, err := oneName(c, "from", from, nil)
			if err != nil {
				return err
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				t, err := a.relate(ctx, c.API(), verb, from, to)
				if err != nil {
					return err
				}
				return a.sayLinks(taskFrom(t))
			})
		},
	}
	c.Flags().StringVar(&from, "from", "", "the task `ID` that waits (required)")
	c.Flags().StringVar(&to, "to", "", "the task `ID` that it waits for (required)")
	return c
}

func (a *app) relate(ctx context.Context, c *api.ClientWithResponses, verb, from, to string) (api.BacklogTask, error) {
	if verb == "unlink" {
		return control.Answer(c.UnlinkBacklogTaskWithResponse(ctx, a.workspace, from, api.Dependency{To: to}))
	}
	return control.Answer(c.LinkBacklogTaskWithResponse(ctx, a.workspace, from, api.Dependency{To: to}))
}

func (a *app) sayLinks(t backlog.Task) error {
	a.did("it was done; see: %s", a.line("backlog", "show", t.Name()))
	if !a.forPeople() {
		return a.print(t, []any{t}, table{names: []string{t.Ref()}})
	}
	on := "no other task"
	if len(t.DependsOn) > 0 {
		on = strings.Join(t.DependsOn, ", ")
	}
	_, err := fmt.Fprintf(a.out, "%s depends on %s\n", printable(t.Name()), printable(shorten(on, 200)))
	return err
}
