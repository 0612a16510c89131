package backlog_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// scene is an instance on which something is about to be done.
type scene struct {
	testing.TB
	*side
	b *backlog.Workspace // over a good line
}

// do is what is done, over a line that loses an answer.
type do func(ctx context.Context, s *side, b *backlog.Workspace) (any, error)

func (s scene) tasks(keys ...string) {
	for _, k := range keys {
		create(s, s.b, backlog.TaskSpec{Key: k, Title: k, MaxRetries: 1, Estimate: tokens(5)})
	}
}

func (s scene) claimed(keys ...string) []backlog.Fence {
	s.tasks(keys...)
	var list []backlog.Fence
	for _, c := range claimCards(s, s.b, nil) {
		list = append(list, c.Fence)
	}
	require.Len(s, list, len(keys))
	return list
}

func (s scene) budget() {
	budget(s, s.b, backlog.Budget{Name: "all", Scope: "workspace", Dimension: "tokens", Hard: 1000 * backlog.Unit})
}

func (s scene) quota() {
	ten := 10
	require.NoError(s, s.b.SetQuota(s.Context(), backlog.Quota{Name: "few", Scope: "workspace", Concurrent: &ten}))
}

func (s scene) exec(sql string, args ...any) { require.NoError(s, s.Exec(sql, args...)) }

// started is an agent that runs.
func (s scene) started() backlog.Fence {
	f := s.running()
	held, err := s.backlog.Record(s.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b"}}})
	require.NoError(s, err)
	require.Equal(s, []bool{true}, held)
	return f
}

var inquiry = backlog.Inquiry{Key: "k", What: commands.Question{Text: "may I?", Options: []string{"allow", "deny"}}, For: time.Hour}

// asksFor is the answer to what an agent that runs has asked.
func (s scene) asksFor() commands.Answer {
	f := s.started()
	q, err := s.backlog.Ask(s.Context(), f, inquiry)
	require.NoError(s, err)
	return commands.Answer{Task: f.Task, Question: q.ID, Answer: "allow", By: "uid:1"}
}

// delivered is the approval of what an agent has delivered for review.
func (s scene) delivered() commands.Review {
	f := s.started()
	require.NoError(s, s.Exec(`UPDATE tasks SET reworks = 0 WHERE id = $1`, f.Task))
	held, err := s.backlog.Record(s.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: commands.Succeeded}, Conn: s.Conn.ID}})
	require.NoError(s, err)
	require.Equal(s, []bool{true}, held)
	return commands.Review{Task: f.Task, Attempt: f.Attempt, Verdict: commands.Approve, By: "uid:1"}
}

// asked lets a connection ask for a task.
func (s scene) asked() backlog.Request {
	s.Meet(s, store.Obeys)
	r := s.request()
	require.Nil(s, s.asks(r)[0].Refusal)
	return r
}

func (s scene) asks(list ...backlog.Request) (out []backlog.Requested) {
	require.NoError(s, s.DB.Tx(s.Context(), "asking", func(ctx context.Context, tx *store.Tx) (err error) {
		out, err = s.backlog.Request(ctx, tx, list)
		return err
	}))
	return out
}

func (s scene) request() backlog.Request {
	return backlog.Request{Conn: s.Conn.ID, Asked: message(), Expires: time.Now().Add(time.Hour),
		Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeNoop, MaxRetries: 1}}
}

// claimedFor is the attempt of what was asked for.
func (s scene) claimedFor(r backlog.Request) backlog.Fence {
	list, err := s.backlog.Claim(s.Context(), backlog.ClaimTerms{Owner: string(s.Self()), Limit: 1})
	require.NoError(s, err)
	require.Len(s, list, 1)
	require.Equal(s, r.Spawn.Task, list[0].Fence.Task)
	return list[0].Fence
}

func message() backlog.Asked {
	return backlog.Asked{Command: storetest.NewID(), Digest: strings.Repeat("ab", 32)}
}

func (s scene) kill(r backlog.Request) backlog.Kill {
	return backlog.Kill{Conn: r.Conn, Asked: message(), Task: r.Spawn.Task, Reason: "enough", Grace: time.Second, Expires: time.Now().Add(time.Hour), Actor: "hub"}
}

func (s scene) running() backlog.Fence {
	s.asked()
	list, err := s.backlog.Claim(s.Context(), backlog.ClaimTerms{Owner: string(s.Self())})
	require.NoError(s, err)
	require.Len(s, list, 1)
	return list[0].Fence
}

// within runs what needs a transaction of its caller.
func within(ctx context.Context, s *side, fn func(ctx context.Context, tx *store.Tx) (any, error)) (got any, err error) {
	err = s.DB.Tx(ctx, "doing it", func(ctx context.Context, tx *store.Tx) error {
		got, err = fn(ctx, tx)
		return err
	})
	return got, err
}

// byOperator is an act of the operator on task a.
func byOperator(act func(*backlog.Workspace, context.Context, backlog.Act) (backlog.Task, error)) do {
	return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
		return act(b, ctx, backlog.Act{Task: "a", Reason: "so"})
	}
}

// reading are the methods that change nothing.
var reading = []string{"Backlog.Wanted", "Backlog.Due", "Backlog.Held", "Backlog.Open", "Backlog.InputsOf", "Backlog.Figures", "Backlog.ForHubs", "Backlog.Workspaces", "Backlog.HoldKills", "Backlog.OpenAttempts", "Backlog.Order", "Backlog.Known", "Backlog.Killed", "Backlog.Pasts", "Backlog.ToPause", "Backlog.PausedAgents", "Backlog.LookForRestore", "Backlog.Restored", "Backlog.NoteBegun", "Backlog.BegunHere", "Backlog.Opened", "Backlog.TakenOver", "Backlog.WaitingAgents", "Backlog.Waits", "Backlog.PendingKill", "Backlog.UnsentOutput", "Backlog.RevokedRuns", "Backlog.Standing", "Backlog.Workspace",
	"Backlog.Agent", "Backlog.Agents", "Backlog.AgentsNamed", "Backlog.LastCheckpoint", "Backlog.LastReview", "Backlog.LastSteps", "Backlog.LastWord", "Backlog.Overran", "Backlog.OverrunOf", "Backlog.WithCheckpoints", "Backlog.OpenQuestions", "Backlog.Question", "Backlog.Questions", "Backlog.QuestionsNamed", "Backlog.Steps", "Workspace.Audit", "Workspace.Before", "Workspace.Bound", "Workspace.Budgets", "Workspace.Freezes", "Workspace.Lanes", "Workspace.List", "Workspace.Name", "Workspace.Quotas",
	"Workspace.Show", "Workspace.ShowAll", "Workspace.Stats", "Workspace.VerifyGrant", "Workspace.Why"}

// writing are all others, by name; what follows a comma says how.
var writing = map[string]func(s scene) do{
	"Workspace.Create": func(s scene) do {
		create(s, s.b, backlog.TaskSpec{Title: "x", IdempotencyKey: "once"})
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			list, err := b.Create(ctx, backlog.TaskSpec{Title: "x", IdempotencyKey: "once"}, backlog.TaskSpec{Title: "y"}, backlog.TaskSpec{Title: "z"})
			return list, errorOr(ctx, b, list, err)
		}
	},
	"Workspace.Create, in one round trip": func(scene) do {
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			var all []backlog.Created
			for range 3 { // the class is known from the second time on
				list, err := b.Create(ctx, backlog.TaskSpec{Title: "x"}, backlog.TaskSpec{Title: "y"})
				if err = errorOr(ctx, b, list, err); err != nil {
					return nil, err
				}
				all = append(all, list...)
			}
			return all, nil
		}
	},
	"Workspace.Claim":                claiming(func(scene) {}, backlog.ClaimTerms{Owner: "w", Limit: 2}),
	"Workspace.Claim, one":           claiming(func(scene) {}, backlog.ClaimTerms{Owner: "w"}),
	"Workspace.Claim, of a budget":   claiming(scene.budget, backlog.ClaimTerms{Owner: "w", Limit: 2}),
	"Workspace.Claim, of a quota":    claiming(scene.quota, backlog.ClaimTerms{Owner: "w", Limit: 2}),
	"Workspace.Claim, by name":       claiming(scene.budget, backlog.ClaimTerms{Owner: "w", Task: "b"}),
	"Workspace.Claim, many at twice": claiming(func(s scene) { s.tasks("d", "e"); s.quota() }, backlog.ClaimTerms{Owner: "w", Limit: 20}),
	"Workspace.Listen": func(scene) do {
		return func(ctx context.Context, s *side, b *backlog.Workspace) (any, error) {
			l, err := b.Listen(ctx)
			if err != nil {
				return nil, err
			}
			defer l.Close()
			return s.TryCount(ctx, `SELECT count(*) FROM listeners WHERE until > now()`)
		}
	},
	"Workspace.ClaimWait": func(s scene) do {
		s.tasks("a")
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return b.ClaimWait(ctx, backlog.ClaimTerms{Owner: "w"}, time.Now().Add(time.Second), stays)
		}
	},
	"Workspace.Complete": func(s scene) do {
		s.budget()
		f := s.claimed("a")
		create(s, s.b, backlog.TaskSpec{Key: "after", Title: "after", DependsOn: []string{"a"}})
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return b.Complete(ctx, backlog.Act{Fence: &f[0], Result: []byte(`{"ok":true}`), Usage: tokens(3)})
		}
	},
	"Workspace.Complete, by the operator": func(s scene) do { s.claimed("a"); return byOperator((*backlog.Workspace).Complete) },
	"Workspace.CompleteMany": func(s scene) do {
		f := s.claimed("a", "b")
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) { return b.CompleteMany(ctx, f) }
	},
	"Workspace.Fail":    func(s scene) do { s.claimed("a"); return byOperator((*backlog.Workspace).Fail) },
	"Workspace.Release": func(s scene) do { s.claimed("a"); return byOperator((*backlog.Workspace).Release) },
	"Workspace.Block":   func(s scene) do { s.tasks("a"); return byOperator((*backlog.Workspace).Block) },
	"Workspace.Cancel":  func(s scene) do { s.tasks("a"); return byOperator((*backlog.Workspace).Cancel) },
	"Workspace.Unblock": func(s scene) do {
		s.tasks("a")
		_, err := s.b.Block(s.Context(), backlog.Act{Task: "a"})
		require.NoError(s, err)
		return byOperator((*backlog.Workspace).Unblock)
	},
	"Workspace.Pause": func(s scene) do { s.tasks("a"); return byOperator((*backlog.Workspace).Pause) },
	"Workspace.Resume": func(s scene) do {
		s.tasks("a")
		_, err := s.b.Pause(s.Context(), backlog.Act{Task: "a"})
		require.NoError(s, err)
		return byOperator((*backlog.Workspace).Resume)
	},
	"Workspace.Archive": func(s scene) do {
		s.tasks("a")
		_, err := s.b.Cancel(s.Context(), backlog.Act{Task: "a"})
		require.NoError(s, err)
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return b.Archive(ctx, "a", true)
		}
	},
	"Workspace.ArchiveSome": func(s scene) do {
		s.tasks("a")
		_, err := s.b.Cancel(s.Context(), backlog.Act{Task: "a"})
		require.NoError(s, err)
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			n, _, err := b.ArchiveSome(ctx, backlog.ArchiveTerm{Lane: "default"})
			return n, err
		}
	},
	"Workspace.Retry": func(s scene) do {
		s.tasks("a")
		_, err := s.b.Cancel(s.Context(), backlog.Act{Task: "a"})
		require.NoError(s, err)
		return byOperator((*backlog.Workspace).Retry)
	},
	"Workspace.Reclaim": func(s scene) do {
		s.claimed("a", "b")
		s.exec(`UPDATE leases SET (until, sweep_at) = (now() - interval '1 second', '-infinity')`)
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			list, err := b.Reclaim(ctx, "")
			return len(list), err
		}
	},
	"Workspace.Reclaim, by name": func(s scene) do {
		s.claimed("a")
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) { return b.Reclaim(ctx, "a") }
	},
	"Workspace.Renew": func(s scene) do {
		f := s.claimed("a")
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return b.Renew(ctx, f[0], time.Hour)
		}
	},
	"Workspace.Report": func(s scene) do {
		s.budget()
		f := s.claimed("a")
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return nil, b.Report(ctx, f[0], "r1", tokens(7))
		}
	},
	"Workspace.Link": func(s scene) do {
		s.tasks("a", "b")
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return nil, b.Link(ctx, "b", "a")
		}
	},
	"Workspace.Unlink": func(s scene) do {
		s.tasks("a", "b")
		require.NoError(s, s.b.Link(s.Context(), "b", "a"))
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return nil, b.Unlink(ctx, "b", "a")
		}
	},
	"Workspace.SetBudget": func(scene) do {
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return nil, b.SetBudget(ctx, backlog.Budget{Name: "all", Scope: "workspace", Dimension: "tokens", Hard: 10 * backlog.Unit})
		}
	},
	"Workspace.GrantBudget": func(s scene) do {
		s.budget()
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return b.GrantBudget(ctx, "all", 20*backlog.Unit, "more")
		}
	},
	"Workspace.ResetBudget": func(s scene) do {
		s.budget()
		f := s.claimed("a")
		require.NoError(s, s.b.Report(s.Context(), f[0], "r1", tokens(2)))
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return b.ResetBudget(ctx, "all", "anew")
		}
	},
	"Workspace.RemoveBudget": func(s scene) do {
		s.budget()
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return nil, b.RemoveBudget(ctx, "all", "gone")
		}
	},
	"Workspace.SetQuota": func(scene) do {
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			one := 1
			return nil, b.SetQuota(ctx, backlog.Quota{Name: "few", Scope: "workspace", Concurrent: &one})
		}
	},
	"Workspace.RemoveQuota": func(s scene) do {
		s.quota()
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return nil, b.RemoveQuota(ctx, "few", "gone")
		}
	},
	"Workspace.SetLane": func(scene) do {
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return nil, b.SetLane(ctx, backlog.Lane{Name: "x", State: "paused", Reason: "so"})
		}
	},
	"Workspace.Freeze": func(scene) do {
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return nil, failed(b.Freeze(ctx, backlog.Freeze{Scope: "workspace", Reason: "so"}))
		}
	},
	"Workspace.Unfreeze": func(s scene) do {
		require.NoError(s, failed(s.b.Freeze(s.Context(), backlog.Freeze{Scope: "workspace", Reason: "so"})))
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) {
			return nil, b.Unfreeze(ctx, "workspace", "", "on")
		}
	},
	"Workspace.RotateGrantKey": func(s scene) do {
		s.claimed("a")
		return func(ctx context.Context, _ *side, b *backlog.Workspace) (any, error) { return b.RotateGrantKey(ctx) }
	},
	"Workspace.Sweep": sweeping(func(ctx context.Context, _ *side, b *backlog.Workspace) (backlog.SweptUp, error) { return b.Sweep(ctx) }),
	"Backlog.FailCircles": func(s scene) do {
		a, z := create(s, s.b, backlog.TaskSpec{Key: "a", Title: "a"})[0].ID, create(s, s.b, backlog.TaskSpec{Key: "z", Title: "z"})[0].ID
		s.imported(s, a, z)
		s.imported(s, z, a)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			failed, err := s.backlog.FailCircles(ctx)
			return len(failed), err
		}
	},
	"Backlog.Sweep": sweeping(func(ctx context.Context, s *side, _ *backlog.Workspace) (backlog.SweptUp, error) {
		return s.backlog.Sweep(ctx, time.Hour)
	}),
	"Backlog.LiftLimits": func(s scene) do {
		s.exec(`INSERT INTO account_limits (workspace, account, until, task) VALUES ('main', 'claude', now() + interval '1 hour', gen_random_uuid())`)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return s.backlog.LiftLimits(ctx, func([]string) store.AuditRow { return store.AuditRow{Actor: "self", Action: "policy.reloaded"} })
		}
	},
	"Backlog.Overruns": func(s scene) do {
		f := s.running()
		require.NoError(s, failed(s.backlog.Record(s.Context(), []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b", Overruns: time.Hour, Patience: time.Hour}}})))
		s.exec(`UPDATE overruns SET due = now()`)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			list, _, err := s.backlog.Overruns(ctx, string(s.Self()), &backlog.Look{}, time.Hour)
			return list, err
		}
	},
	"Backlog.Claim": func(s scene) do {
		s.asked()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return s.backlog.Claim(ctx, backlog.ClaimTerms{Owner: "w", Limit: 5})
		}
	},
	"Backlog.Record": func(s scene) do {
		f := s.running()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			first, err := s.backlog.Record(ctx, []backlog.Progress{{Start: &backlog.Start{Fence: f, Pid: 1, BootID: "b"}}})
			if err != nil {
				return nil, err
			}
			second, err := s.backlog.Record(ctx, []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: commands.AttemptFailed}}})
			return append(first, second...), err
		}
	},
	"Backlog.Renew": func(s scene) do {
		f := s.running()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			held, err := s.backlog.Renew(ctx, []backlog.Fence{f}, time.Hour)
			return held[f], err
		}
	},
	"Backlog.Heard": func(s scene) do {
		f := s.started()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			_, err := s.backlog.Heard(ctx, f)
			return nil, err
		}
	},
	"Backlog.SayEnd": func(s scene) do {
		f := s.started()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			_, err := s.backlog.SayEnd(ctx, f, commands.Word{Report: commands.Report{As: commands.SaidDone, Text: "all of it"}})
			return nil, err
		}
	},
	"Backlog.Unanswered": func(s scene) do {
		f := s.started()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			ids, err := s.backlog.Unanswered(ctx, f)
			return len(ids), err
		}
	},
	"Backlog.SayProgress": func(s scene) do {
		f := s.started()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			_, err := s.backlog.SayProgress(ctx, f, commands.Progress{Step: "here"})
			return nil, err
		}
	},
	"Backlog.KeepCheckpoint": func(s scene) do {
		f, session := s.started(), "abc"
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			_, err := s.backlog.KeepCheckpoint(ctx, f, backlog.Checkpoint{Digest: strings.Repeat("ab", 32), Size: 7, Session: &session})
			return nil, err
		}
	},
	"Backlog.SettledCheckpoint": func(s scene) do {
		f := s.started()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return s.backlog.SettledCheckpoint(ctx, f)
		}
	},
	"Backlog.Ask": func(s scene) do {
		f := s.started()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			q, err := s.backlog.Ask(ctx, f, inquiry)
			return q.ID, err
		}
	},
	"Backlog.AnswerHere": func(s scene) do {
		a := s.asksFor()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return nil, s.backlog.AnswerHere(ctx, a)
		}
	},
	"Backlog.Withdraw": func(s scene) do {
		f := s.started()
		q, err := s.backlog.Ask(s.Context(), f, inquiry)
		require.NoError(s, err)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			q, err := s.backlog.Withdraw(ctx, f, q.ID)
			return q.State, err
		}
	},
	"Backlog.Answer": func(s scene) do {
		a := s.asksFor()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return within(ctx, s, func(ctx context.Context, tx *store.Tx) (any, error) {
				return s.backlog.Answer(ctx, tx, backlog.Answerer{Actor: "lab", Conn: s.Conn.ID}, a)
			})
		}
	},
	"Backlog.KeepOutput": func(s scene) do {
		f := s.running()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return s.backlog.KeepOutput(ctx, []backlog.Fence{f})
		}
	},
	"Backlog.OutputSent": func(s scene) do {
		f := s.running()
		list, err := s.backlog.KeepOutput(s.Context(), []backlog.Fence{f})
		require.NoError(s, err)
		require.Len(s, list, 1)
		list[0].Streams[0].Through = 10
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return nil, s.backlog.OutputSent(ctx, list, nil)
		}
	},
	"Backlog.DropOutput": func(s scene) do {
		f := s.running()
		_, err := s.backlog.KeepOutput(s.Context(), []backlog.Fence{f})
		require.NoError(s, err)
		require.NoError(s, s.Exec(`UPDATE connections SET state = 'revoked'`))
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return nil, s.backlog.DropOutput(ctx)
		}
	},
	"Backlog.RevokeWork, letting finish": func(s scene) do {
		s.running()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return within(ctx, s, func(ctx context.Context, tx *store.Tx) (any, error) {
				return nil, s.backlog.RevokeWork(ctx, tx, s.Conn.ID, false)
			})
		}
	},
	"Backlog.RevokeWork": func(s scene) do {
		s.running()
		again := s.request()
		_, err := within(s.Context(), s.side, func(ctx context.Context, tx *store.Tx) (any, error) {
			return s.backlog.Request(ctx, tx, []backlog.Request{again})
		})
		require.NoError(s, err)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return within(ctx, s, func(ctx context.Context, tx *store.Tx) (any, error) {
				return nil, s.backlog.RevokeWork(ctx, tx, s.Conn.ID, true)
			})
		}
	},
	"Backlog.KillHere": func(s scene) do {
		f := s.running()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			run, err := s.backlog.KillHere(ctx, backlog.HostKill{Kill: commands.Kill{Task: f.Task, Reason: "so"}, ID: "01a1fe92-0829-7df7-af08-f4f57a30c0e9", Actor: "uid:1"})
			return run, err
		}
	},
	"Backlog.Review": func(s scene) do {
		v := s.delivered()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return within(ctx, s, func(ctx context.Context, tx *store.Tx) (any, error) {
				return s.backlog.Review(ctx, tx, s.Conn.ID, "lab", v)
			})
		}
	},
	"Backlog.Pause": func(s scene) do {
		p := pauseOf(s.asked(), 1, true)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return within(ctx, s, func(ctx context.Context, tx *store.Tx) (any, error) {
				state, _, err := s.backlog.Pause(ctx, tx, p)
				return state, err
			})
		}
	},
	"Backlog.PauseHere": func(s scene) do {
		f := s.running()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return s.backlog.PauseHere(ctx, backlog.Pause{Task: f.Task, Paused: true, Reason: "so", Actor: "uid:1"})
		}
	},
	"Backlog.MarkPaused": func(s scene) do {
		f := s.running()
		run, err := s.backlog.PauseHere(context.Background(), backlog.Pause{Task: f.Task, Paused: true, Reason: "so", Actor: "uid:1"})
		require.NoError(s, err)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return s.backlog.MarkPaused(ctx, *run)
		}
	},
	"Backlog.KeepPaused": func(s scene) do {
		f := s.running()
		_, err := s.backlog.PauseHere(context.Background(), backlog.Pause{Task: f.Task, Paused: true, Reason: "so", Actor: "uid:1"})
		require.NoError(s, err)
		s.exec(`UPDATE leases SET paused = false`)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return s.backlog.KeepPaused(ctx, f)
		}
	},
	"Backlog.TakeBack": func(s scene) do {
		task := s.asked().Spawn.Task
		_, err := s.backlog.PauseHere(context.Background(), backlog.Pause{Task: task, Paused: true, Reason: "so", Actor: "uid:1"})
		require.NoError(s, err)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return nil, s.backlog.TakeBack(ctx, []backlog.PausedAgent{{Task: task, Attempt: 2}})
		}
	},
	"Backlog.Request": func(s scene) do {
		r := s.asked()
		again := s.request()
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return within(ctx, s, func(ctx context.Context, tx *store.Tx) (any, error) {
				return s.backlog.Request(ctx, tx, []backlog.Request{r, again})
			})
		}
	},
	"Backlog.InputCame": func(s scene) do {
		s.Meet(s, store.Obeys)
		require.Nil(s, s.asks(s.withInput(7))[0].Refusal)
		w := s.input(7)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return nil, s.backlog.InputCame(ctx, w)
		}
	},
	"Backlog.InputGone": func(s scene) do {
		s.Meet(s, store.Obeys)
		require.Nil(s, s.asks(s.withInput(7))[0].Refusal)
		w := s.input(7)
		require.NoError(s, s.backlog.InputCame(s.Context(), w))
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return nil, s.backlog.InputGone(ctx, w)
		}
	},
	"Backlog.OfferAgain": func(s scene) do {
		s.Meet(s, store.Obeys)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return nil, s.backlog.OfferAgain(ctx, s.Conn.ID, "1")
		}
	},
	"Backlog.InputLost": func(s scene) do {
		s.Meet(s, store.Obeys)
		require.Nil(s, s.asks(s.withInput(7))[0].Refusal)
		w := s.input(7)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return s.backlog.InputLost(ctx, w, "it is not there")
		}
	},
	"Backlog.Brought": func(s scene) do {
		f := s.claimedFor(s.asked())
		_, err := s.backlog.Record(s.Context(), []backlog.Progress{{End: &backlog.End{Fence: f, Outcome: commands.Succeeded, Bundle: leaves(s.input(7))}, Conn: s.Conn.ID}})
		require.NoError(s, err)
		w := s.input(7)
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			_, err := s.backlog.Brought(ctx, w, true)
			return nil, err
		}
	},
	"Backlog.Recall": func(s scene) do {
		list := []commands.TaskStanding{{Task: s.asked().Spawn.Task, State: commands.Running, Attempt: 2}}
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return within(ctx, s, func(ctx context.Context, tx *store.Tx) (any, error) {
				return nil, s.backlog.Recall(ctx, tx, s.Conn.ID, list)
			})
		}
	},
	"Backlog.NoteKill": func(s scene) do {
		k := s.kill(s.asked())
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return within(ctx, s, func(ctx context.Context, tx *store.Tx) (any, error) { return s.backlog.NoteKill(ctx, tx, k) })
		}
	},
	"Backlog.Kill": func(s scene) do {
		k := s.kill(s.asked())
		return func(ctx context.Context, s *side, _ *backlog.Workspace) (any, error) {
			return within(ctx, s, func(ctx context.Context, tx *store.Tx) (any, error) {
				state, err := s.backlog.NoteKill(ctx, tx, k)
				if err != nil {
					return nil, err
				}
				return s.backlog.Kill(ctx, tx, k, state)
			})
		}
	},
}

// errorOr looks up what was created.
func errorOr(ctx context.Context, b *backlog.Workspace, list []backlog.Created, err error) error {
	for _, c := range list {
		if err == nil {
			_, err = b.Show(ctx, c.ID)
		}
	}
	return err
}

func claiming(limits func(scene), terms backlog.ClaimTerms) func(scene) do {
	return func(s scene) do {
		s.tasks("a", "b", "c")
		limits(s)
		return func(ctx context.Context, s *side, b *backlog.Workspace) (any, error) {
			list, err := b.Claim(ctx, terms)
			held, wrong := s.TryCount(ctx, `SELECT count(*) FROM leases`)
			if wrong == nil && held != len(list) {
				return "the database has other leases than the answer", err
			}
			return list, err
		}
	}
}

func sweeping(sweep func(context.Context, *side, *backlog.Workspace) (backlog.SweptUp, error)) func(scene) do {
	return func(s scene) do {
		s.budget()
		s.claimed("a")
		create(s, s.b, backlog.TaskSpec{Key: "later", Title: "later", NotBefore: time.Now().Add(time.Hour)})
		s.asked()
		s.exec(`UPDATE leases SET (until, sweep_at) = (now() - interval '1 second', '-infinity')`)
		s.exec(`UPDATE due SET at = now()`)
		s.exec(`UPDATE tasks SET not_before = now() WHERE key = 'later'`)
		s.exec(`UPDATE ready SET expires_at = now() WHERE expires_at < 'infinity'`)
		s.exec(`UPDATE budgets SET resets_at = now() - interval '1 hour', every = interval '1 day'`)
		return func(ctx context.Context, s *side, b *backlog.Workspace) (any, error) {
			n, err := sweep(ctx, s, b)
			n.Next = 0
			return n, err
		}
	}
}

func TestALostAnswerToACommitRepeatsNothing(t *testing.T) {
	t.Parallel()
	for name, ready := range scale.SomeCases(t, 12, writing) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.LoseAnswers(t, func(t testing.TB, bare *storetest.Side) storetest.Act {
				s := &side{bare, backlog.Open(bare.DB, nobodyAsks)}
				act := ready(scene{t, s, boardOf(t, s, backlog.MainWorkspace)})
				return func(ctx context.Context, over *storetest.Side) (any, error) {
					lossy := &side{over, backlog.Open(over.DB, nobodyAsks)}
					return act(ctx, lossy, boardOf(t, lossy, backlog.MainWorkspace))
				}
			})
		})
	}
}

// A method that is new belongs to one of the two lists.
func TestEveryMethodIsKnownToReadOrToWrite(t *testing.T) {
	t.Parallel()
	known := slices.Clone(reading)
	for name := range maps.Keys(writing) {
		name, _, _ = strings.Cut(name, ",")
		known = append(known, name)
	}
	slices.Sort(known)

	require.ElementsMatch(t, slices.Compact(known), storetest.Methods(&backlog.Backlog{}, &backlog.Workspace{}))
}

// A claim that has lost its line may still be at work in the server. It is ended
// before the claim is made again, or both would be committed.
func TestAClaimThatIsStillUnderWayIsEndedFirst(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	here := scene{t, s, boardOf(t, s, backlog.MainWorkspace)}
	here.tasks("a", "b", "c", "d")
	here.quota()
	holder, watcher := owner(t, s.URL), owner(t, s.URL)
	_, err := holder.Exec(t.Context(), `BEGIN; SELECT FROM quotas FOR UPDATE`)
	require.NoError(t, err)
	const waiting = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')
		AND (SELECT sessions_killed FROM pg_stat_database WHERE datname = current_database()) = $1`
	waits := func(killed int) {
		eventually(t, "a claim waits for the quota", func() (yes bool) {
			require.NoError(t, watcher.QueryRow(t.Context(), waiting, killed).Scan(&yes))
			return yes
		})
	}
	proxy := storetest.NewProxy(t, s.URL)
	lossy := openSide(t, proxy.URL, 4)
	proxy.Cut(proxy.Commits() + 1)
	var list []backlog.Claimed
	ended := make(chan error, 1)

	go func() {
		b, err := lossy.backlog.Workspace(backlog.MainWorkspace, "ann")
		if err == nil {
			list, err = b.Claim(context.Background(), backlog.ClaimTerms{Owner: "w", Limit: 2})
		}
		ended <- err
	}()
	waits(1) // the second one: the first is no more
	_, err = holder.Exec(t.Context(), `COMMIT`)
	require.NoError(t, err)

	require.NoError(t, <-ended)
	require.Len(t, list, 2)
	require.Equal(t, 2, s.Count(t, `SELECT count(*) FROM leases`))
}

// Whether something stands ready comes with the answer to the commit. Where that is lost, something may.
func TestAfterALostAnswerSomethingMayWait(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	b := boardOf(t, s, backlog.MainWorkspace)
	proxy := storetest.NewProxy(t, s.URL)
	lossy := openSide(t, proxy.URL, 2)
	record := func(c backlog.Claimed) {
		held, err := lossy.backlog.Record(t.Context(), []backlog.Progress{{End: &backlog.End{Fence: c.Fence, Outcome: commands.Succeeded}}})
		require.NoError(t, err)
		require.Equal(t, []bool{true}, held)
	}
	create(t, b, backlog.TaskSpec{Title: "t"}, backlog.TaskSpec{Title: "t"})
	list := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Limit = 2 })
	record(list[0])
	require.False(t, lossy.backlog.Waits())
	create(t, b, backlog.TaskSpec{Title: "t"})
	proxy.Lose(proxy.Commits() + 1)

	record(list[1])

	require.True(t, lossy.backlog.Waits())
}

func owner(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(url))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
