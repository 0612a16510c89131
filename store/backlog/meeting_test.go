package backlog_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// meeting is two acts on related tasks at the same moment. The keys in them get
// the number of the round appended.
type meeting struct {
	specs []backlog.TaskSpec
	first func(ctx context.Context, b *backlog.Workspace, k func(string) string) error
	other func(ctx context.Context, b *backlog.Workspace, k func(string) string) error
	// end says which of the two errors are right together, and the state of c.
	end func(first, other commands.Code, c backlog.Task) bool
}

var meetings = map[string]meeting{
	"an edge is removed while the last other dependency completes": {
		specs: []backlog.TaskSpec{{Key: "a"}, {Key: "b"}, {Key: "c", DependsOn: []string{"a", "b"}}},
		first: complete("a"), other: unlink("c", "b"), end: claimable,
	},
	"an edge that is there is added while it is met": {
		specs: []backlog.TaskSpec{{Key: "a"}, {Key: "c", DependsOn: []string{"a"}}},
		first: complete("a"), other: link("c", "a"), end: claimable,
	},
	"an edge is added while it is met": {
		specs: []backlog.TaskSpec{{Key: "a"}, {Key: "c"}}, first: complete("a"), other: link("c", "a"), end: claimable,
	},
	"a dependent gets a budget of its own while its dependency completes": {
		specs: []backlog.TaskSpec{{Key: "a"}, {Key: "c", DependsOn: []string{"a"}}}, first: complete("a"),
		other: func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
			return b.SetBudget(ctx, backlog.Budget{Name: strings.ReplaceAll(k("own"), " ", "-"), Scope: "task", Target: k("c"), Dimension: "usd", Hard: backlog.Unit})
		},
		end: func(first, other commands.Code, c backlog.Task) bool {
			return first == "" && (other == "" || other == commands.Conflict) && c.Eligibility == backlog.EligibleReady
		},
	},
	"both dependencies complete": {
		specs: []backlog.TaskSpec{{Key: "a"}, {Key: "b"}, {Key: "c", DependsOn: []string{"a", "b"}}},
		first: complete("a"), other: complete("b"), end: claimable,
	},
	"a dependent is blocked and unblocked while its dependency completes": {
		specs: []backlog.TaskSpec{{Key: "a"}, {Key: "c", DependsOn: []string{"a"}}}, first: complete("a"),
		other: func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
			if _, err := b.Block(ctx, backlog.Act{Task: k("c")}); err != nil {
				return err
			}
			return failure(b.Unblock(ctx, backlog.Act{Task: k("c")}))
		}, end: claimable,
	},
	"a dependent is created while its dependency completes": {
		specs: []backlog.TaskSpec{{Key: "a"}}, first: complete("a"),
		other: func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
			_, err := b.Create(ctx, backlog.TaskSpec{Key: k("c"), Title: "t", DependsOn: []string{k("a")}})
			return err
		}, end: claimable,
	},
	"a dependent that minds is created while its dependency fails": {
		specs: []backlog.TaskSpec{{Key: "a"}},
		first: func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
			return failure(b.Fail(ctx, backlog.Act{Task: k("a")}))
		},
		other: func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
			_, err := b.Create(ctx, backlog.TaskSpec{Key: k("c"), Title: "t", DependsOn: []string{k("a")}, OnFailedDep: "cancel"})
			return err
		},
		end: func(first, other commands.Code, c backlog.Task) bool {
			return first == "" && (other == "" && c.State == commands.Cancelled || other == commands.Conflict && c.ID == "")
		},
	},
	"two edges would close a circle together": {
		specs: []backlog.TaskSpec{{Key: "a"}, {Key: "c"}}, first: link("a", "c"), other: link("c", "a"),
		end: func(first, other commands.Code, _ backlog.Task) bool {
			return first == "" && other == commands.Cycle || first == commands.Cycle && other == ""
		},
	},
	"a task is cancelled while its dependency completes": {
		specs: []backlog.TaskSpec{{Key: "a"}, {Key: "c", DependsOn: []string{"a"}}}, first: complete("a"),
		other: func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
			return failure(b.Cancel(ctx, backlog.Act{Task: k("c")}))
		},
		end: func(first, other commands.Code, c backlog.Task) bool {
			return first == "" && other == "" && c.State == commands.Cancelled
		},
	},
	"two clients create the same task": {
		first: createC, other: createC, end: claimable,
	},
	"a task is taken back while it is completed": {
		specs: []backlog.TaskSpec{{Key: "c", Priority: 100}},
		first: func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
			list, err := b.Claim(ctx, backlog.ClaimTerms{Owner: "w", Task: k("c")})
			if err != nil {
				return nil // cancelled before
			}
			return failure(b.Complete(ctx, backlog.Act{Fence: &list[0].Fence}))
		},
		other: func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
			return failure(b.Cancel(ctx, backlog.Act{Task: k("c")}))
		},
		end: func(first, other commands.Code, c backlog.Task) bool {
			return first == "" && other == commands.Conflict && c.State == commands.Completed || other == "" && c.State == commands.Cancelled
		},
	},
}

func createC(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
	_, err := b.Create(ctx, backlog.TaskSpec{Key: k("c"), IdempotencyKey: k("once"), Title: "t"})
	return err
}

func complete(key string) func(context.Context, *backlog.Workspace, func(string) string) error {
	return func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
		return failure(b.Complete(ctx, backlog.Act{Task: k(key)}))
	}
}

func link(from, to string) func(context.Context, *backlog.Workspace, func(string) string) error {
	return func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
		return b.Link(ctx, k(from), k(to))
	}
}

func unlink(from, to string) func(context.Context, *backlog.Workspace, func(string) string) error {
	return func(ctx context.Context, b *backlog.Workspace, k func(string) string) error {
		return b.Unlink(ctx, k(from), k(to))
	}
}

func claimable(first, other commands.Code, c backlog.Task) bool {
	return first == "" && other == "" && c.Eligibility == backlog.EligibleReady
}

// Two acts at the same moment leave what one of their orders would leave, and
// whatever can be claimed stands where claimers look.
func TestRaceOfTwoActs(t *testing.T) {
	t.Parallel()
	rounds := scale.Larger(t, "SPAWNMESH_RACE_ROUNDS", 125, 500) / 25
	for name, m := range meetings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSide(t)
			b := boardOf(t, s, backlog.MainWorkspace)
			for round := range rounds {
				m.run(t, b, func(key string) string { return fmt.Sprint(key, " of round ", round) })
			}
			requireInvariants(t, s.URL)
			ready, err := b.List(t.Context(), backlog.Filter{State: commands.Queued, Limit: 1000})
			require.NoError(t, err)
			for _, r := range ready {
				if r.Eligibility == backlog.EligibleReady {
					require.Len(t, claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = r.ID }), 1)
				}
			}
		})
	}
}

func (m meeting) run(t *testing.T, b *backlog.Workspace, k func(string) string) {
	t.Helper()
	for _, s := range m.specs {
		s.Key, s.Title = k(s.Key), "t"
		deps := []string{}
		for _, d := range s.DependsOn {
			deps = append(deps, k(d))
		}
		s.DependsOn = deps
		create(t, b, s)
	}
	var errs [2]error
	acts := []func(context.Context, *backlog.Workspace, func(string) string) error{m.first, m.other}
	atOnce(2, func(i int) { errs[i] = acts[i](t.Context(), b, k) })
	c, err := b.Show(t.Context(), k("c"))
	if err != nil {
		require.Equal(t, commands.NotFound, commands.CodeOf(err), "%v", err)
	}
	codes := [2]commands.Code{}
	for i, err := range errs {
		if err != nil {
			codes[i] = commands.CodeOf(err)
		}
	}
	require.True(t, m.end(codes[0], codes[1], c), "%v; then c is %s %s", errs, c.State, c.Eligibility)
}
