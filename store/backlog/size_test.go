package backlog_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// readers are what people and programs ask of a large database, each once with
// what it finds at once, and once with what is rare or old.
func (l *large) readers() map[string]func(context.Context) error {
	find := func(f backlog.Filter, want int) func(context.Context) error {
		return func(ctx context.Context) error {
			f.Limit = pageLength
			list, err := l.main.List(ctx, f)
			return counted(len(list), want, err)
		}
	}
	mirrors := func(spoke string, open bool, want int) func(context.Context) error {
		return func(ctx context.Context) error {
			list, _, err := l.DB.ListMirrors(ctx, store.MirrorTerms{Spoke: spoke, Open: open, Limit: pageLength})
			return counted(len(list), want, err)
		}
	}
	labelled := func(labels, spoke string, open bool, want int) func(context.Context) error {
		return func(ctx context.Context) error {
			s, err := commands.ParseSelector(labels)
			if err != nil {
				return err
			}
			list, _, err := l.DB.ListMirrors(ctx, store.MirrorTerms{Spoke: spoke, Open: open, Labels: s, Limit: pageLength})
			return counted(len(list), want, err)
		}
	}
	agents := func(hub string, open bool, want int) func(context.Context) error {
		return func(ctx context.Context) error {
			list, err := l.backlog.Agents(ctx, hub, open, "", pageLength)
			return counted(len(list), want, err)
		}
	}
	return map[string]func(context.Context) error{
		"stats": func(ctx context.Context) error {
			s, err := l.main.Stats(ctx)
			if err == nil && (s.Claimable != int64(l.ready) || s.States[commands.Completed] != int64(l.completed) || s.OldestReady == nil) {
				err = fmt.Errorf("stats are %+v, of %d ready and %d completed", s, l.ready, l.completed)
			}
			return err
		},
		"how many stand ready": func(ctx context.Context) error {
			swept, err := l.backlog.Sweep(ctx, time.Hour)
			return counted(swept.Ready, l.ready+1, err)
		},
		"figures of all workspaces": func(ctx context.Context) error {
			f, err := l.backlog.Figures(ctx)
			n := int64(0)
			for _, c := range f.Lanes {
				if c.State == "ready" {
					n += c.Tasks
				}
			}
			return counted(int(n), l.ready+1, err)
		},
		"figures of the outbox": func(ctx context.Context) error {
			boxes, err := l.DB.Outboxes(ctx)
			return counted(len(boxes), 2, err)
		},
		"sizes":                                   func(ctx context.Context) error { _, err := l.DB.Sizes(ctx); return err },
		"lanes":                                   func(ctx context.Context) error { _, err := l.main.Lanes(ctx); return err },
		"list":                                    find(backlog.Filter{}, pageLength),
		"list a later page":                       find(backlog.Filter{Before: l.id(l.ended / 2)}, pageLength),
		"list by lane":                            find(backlog.Filter{Lane: "lane-7"}, pageLength),
		"list of a lane with few tasks":           find(backlog.Filter{Lane: "rare"}, 10),
		"list by state":                           find(backlog.Filter{State: commands.Queued}, pageLength),
		"list by state and lane":                  find(backlog.Filter{State: commands.Queued, Lane: "lane-7"}, pageLength),
		"list by state and a lane with few":       find(backlog.Filter{State: commands.Queued, Lane: "rare"}, 5),
		"list what few tasks are":                 find(backlog.Filter{State: commands.Failed}, pageLength),
		"list what no task of a lane is":          find(backlog.Filter{State: commands.Expired, Lane: "lane-7"}, 0),
		"list what few of a lane are":             find(backlog.Filter{State: commands.Failed, Lane: "rare"}, 5),
		"list what has ended":                     find(backlog.Filter{Status: backlog.BoardDone}, pageLength),
		"list what has ended, of a lane":          find(backlog.Filter{State: commands.Completed, Lane: "lane-7"}, pageLength),
		"list what was cancelled while it waited": find(backlog.Filter{State: commands.Cancelled}, min(pageLength, l.ended/5000)),
		"list what is archived":                   find(backlog.Filter{Archived: true}, pageLength),
		"list what is archived, of a lane":        find(backlog.Filter{Archived: true, Lane: "lane-8"}, pageLength),
		"list a lane of which nothing is":         find(backlog.Filter{Archived: true, Lane: "lane-7"}, 0),
		"list a lane of which all is":             find(backlog.Filter{Status: backlog.BoardDone, Lane: "lane-8"}, 0),
		"list what few of a phase are archived":   find(backlog.Filter{Archived: true, Phase: "build", State: commands.Failed}, 0),
		"list what is blocked":                    find(backlog.Filter{Status: backlog.BoardBlocked}, pageLength),
		"list what is held":                       find(backlog.Filter{Status: backlog.BoardClaimed}, pageLength),
		"list what one holds":                     find(backlog.Filter{Owner: "worker-1"}, 1),
		"list a phase":                            find(backlog.Filter{Phase: "late"}, pageLength),
		"list what few of a phase are":            find(backlog.Filter{Phase: "build", State: commands.Failed}, 18),
		"list the open ones of a phase":           find(backlog.Filter{Phase: "build", State: commands.Queued}, 5),
		"list a phase of a lane":                  find(backlog.Filter{Phase: "build", State: commands.Queued, Lane: "rare"}, 5),
		"list what would be claimed":              find(backlog.Filter{ReadyOnly: true}, pageLength),
		"list what would be claimed of a lane":    find(backlog.Filter{ReadyOnly: true, Lane: "lane-7"}, pageLength),
		"list a small workspace": func(ctx context.Context) error {
			list, err := l.tiny.List(ctx, backlog.Filter{})
			return counted(len(list), 4, err)
		},
		"stats of a small workspace": func(ctx context.Context) error { s, err := l.tiny.Stats(ctx); return counted(int(s.Claimable), 1, err) },
		"audit of a small workspace": func(ctx context.Context) error {
			list, err := l.tiny.Audit(ctx, "", 0, 100)
			return counted(len(list), 9, err)
		},
		"a later page of the audit of a large workspace": func(ctx context.Context) error {
			list, err := l.main.Audit(ctx, "", 1000, 50)
			return counted(len(list), 50, err)
		},
		"a later page of the audit of a small workspace": func(ctx context.Context) error {
			list, err := l.tiny.Audit(ctx, "", int64(l.ended)+1, 100)
			return counted(len(list), 3, err)
		},
		"audit of a task by its short id": func(ctx context.Context) error {
			list, err := l.DB.AuditTrail(ctx, commands.ShortID(l.id(30)), 0, 50)
			return counted(len(list), 3, err)
		},
		"audit of a short id that nothing has": func(ctx context.Context) error {
			list, err := l.DB.AuditTrail(ctx, "zzzzzzzz", 0, 50)
			return counted(len(list), 0, err)
		},
		"audit of a task": func(ctx context.Context) error {
			list, err := l.main.Audit(ctx, l.id(30), 0, 100)
			return counted(len(list), 3, err)
		},
		"audit of all": func(ctx context.Context) error {
			list, err := l.DB.AuditTrail(ctx, "", 0, 50)
			return counted(len(list), 50, err)
		},
		"a later page of the audit": func(ctx context.Context) error {
			list, err := l.DB.AuditTrail(ctx, "", 1000, 50)
			return counted(len(list), 50, err)
		},
		"audit of a task, of the instance": func(ctx context.Context) error {
			list, err := l.DB.AuditTrail(ctx, l.id(30), 0, 50)
			return counted(len(list), 3, err)
		},
		"show a task that has ended": func(ctx context.Context) error { _, err := l.main.Show(ctx, l.id(30)); return err },
		"show a task by the beginning of its id": func(ctx context.Context) error {
			_, err := l.main.Show(ctx, l.id(l.ended + 30)[:35])
			return ambiguous(err)
		},
		"show a task by its short id": func(ctx context.Context) error { _, err := l.main.Show(ctx, commands.ShortID(l.id(30))); return err },
		"show a task by the beginning of its short id": func(ctx context.Context) error {
			_, err := l.main.Show(ctx, commands.ShortID(l.id(l.ended + 30))[:7])
			return ambiguous(err)
		},
		"show tasks": func(ctx context.Context) error {
			list, err := l.main.ShowAll(ctx, []string{l.id(30), l.id(l.ended + 30)})
			return counted(len(list), 2, err)
		},
		"why a task waits":          func(ctx context.Context) error { _, err := l.main.Why(ctx, l.id(l.ended+30)); return err },
		"what stands before a task": func(ctx context.Context) error { _, err := l.main.Before(ctx, l.id(l.ended+30)); return err },
		"what stands before an order": func(ctx context.Context) error {
			_, err := l.DB.Before(ctx, store.Mirror{Conn: l.conns["attic"], Command: l.id(30)})
			return err
		},
		"agents":                              agents("", false, pageLength),
		"agents that have not ended":          agents("", true, 7),
		"agents of a hub with few":            agents("shed", false, 5),
		"agents of a hub that have not ended": agents("shed", true, 2),
		"an agent by the beginning of its id": func(ctx context.Context) error { _, err := l.backlog.Agent(ctx, l.id(10)); return err },
		"an agent by its short id": func(ctx context.Context) error {
			_, err := l.backlog.Agent(ctx, commands.ShortID(l.id(10)))
			return err
		},
		"open attempts": func(ctx context.Context) error {
			_, err := l.backlog.OpenAttempts(ctx, "worker-1", nil, "")
			return err
		},
		"a kill that is under way":            func(ctx context.Context) error { _, _, err := l.backlog.PendingKill(ctx, l.id(30)); return err },
		"what hubs are told":                  func(ctx context.Context) error { _, err := l.backlog.ForHubs(ctx); return err },
		"output to be sent":                   func(ctx context.Context) error { _, err := l.backlog.UnsentOutput(ctx); return err },
		"what is known from before a restore": func(ctx context.Context) error { _, err := l.backlog.Pasts(ctx, []string{l.id(30)}); return err },
		"a sweep":                             func(ctx context.Context) error { _, err := l.backlog.Sweep(ctx, time.Hour); return err },
		"mirrors":                             mirrors("", false, pageLength),
		"open mirrors":                        mirrors("", true, pageLength),
		"mirrors of a spoke with few":         mirrors("shed", false, 5),
		"open mirrors of a spoke":             mirrors("attic", true, pageLength),
		"open mirrors of a spoke with few":    mirrors("shed", true, 2),
		"mirrors with a label of few":         labelled("app=rare", "", false, 7),
		"open mirrors with a label of few":    labelled("app=rare,!tier", "", true, 4),
		"mirrors of a spoke with a label":     labelled("app=rare,app", "shed", false, 5),
		"mirrors with a label that none has":  labelled("app=none", "", false, 0),
		"a mirror by the beginning of its id": func(ctx context.Context) error {
			list, err := l.DB.FindMirrors(ctx, l.id(30))
			return counted(len(list), 1, err)
		},
		"a mirror by its short id": func(ctx context.Context) error {
			list, err := l.DB.FindMirrors(ctx, commands.ShortID(l.id(30)))
			return counted(len(list), 1, err)
		},
		"a short id that no mirror has": func(ctx context.Context) error {
			list, err := l.DB.FindMirrors(ctx, "zzzzzzzz")
			return counted(len(list), 0, err)
		},
		"a question by its short id": func(ctx context.Context) error {
			list, err := l.backlog.QuestionsNamed(ctx, commands.ShortID(l.id(30)))
			return counted(len(list), 1, err)
		},
		"a question of an agent on a spoke by its short id": func(ctx context.Context) error {
			list, err := l.DB.InquiriesNamed(ctx, commands.ShortID(l.id(30)))
			return counted(len(list), 1, err)
		},
		"a question of an agent on a spoke by its id": func(ctx context.Context) error {
			list, err := l.DB.InquiriesNamed(ctx, l.id(30))
			return counted(len(list), 1, err)
		},
		"questions that are open on spokes": func(ctx context.Context) error {
			list, err := l.DB.OpenInquiries(ctx, store.QuestionPage{Limit: pageLength}) // sixty that came last are of agents that have ended
			return counted(len(list), pageLength, err)
		},
		"a later page of the questions that are open here": func(ctx context.Context) error {
			list, err := l.backlog.OpenQuestions(ctx, store.QuestionPage{After: store.QuestionPlace{At: time.Now(), ID: l.id(0)}, Limit: pageLength})
			return counted(len(list), pageLength, err)
		},
		"figures of questions": func(ctx context.Context) error { _, _, err := l.DB.QuestionFigures(ctx); return err },
		"questions of agents that have ended, which are closed": func(ctx context.Context) error {
			_, _, err := l.DB.CloseInquiries(ctx, time.Time{})
			return err
		},
		"receipts": func(ctx context.Context) error {
			list, err := l.DB.Receipts(ctx, l.id(30))
			return counted(len(list), 3, err)
		},
		"what a result comes from": func(ctx context.Context) error {
			p, err := l.DB.ProvenanceOf(ctx, l.conns["attic"], l.id(100))
			if err == nil && p.Order == nil {
				err = errors.New("the order was not found")
			}
			return err
		},
		"the answer to a question": func(ctx context.Context) error {
			w, err := l.DB.Answered(ctx, l.id(30))
			return counted(len(w), 1, err)
		},
		"a log": func(ctx context.Context) error { _, err := l.DB.Log(ctx, l.id(30)); return err },
		"the logs of a connection": func(ctx context.Context) error {
			_, err := l.DB.LogsOf(ctx, l.conns["attic"], []string{l.id(30)})
			return err
		},
		"which logs are kept": func(ctx context.Context) error {
			_, _, err := l.DB.LogConns(ctx, []string{l.id(30), "none"})
			return err
		},
		"output beyond what is kept": func(ctx context.Context) error {
			for bytes, want := range map[int64]int{1 << 40: 0, 4096: store.DropBatch} {
				list, err := l.DB.OldSegments(ctx, l.conns["attic"], store.LogBound{Bytes: bytes, Age: 24 * time.Hour})
				if err := counted(len(list), want, err); err != nil {
					return err
				}
			}
			return nil
		},
		"agents that run on spokes":   func(ctx context.Context) error { _, err := l.DB.RunningCounts(ctx); return err },
		"what waits in the outbox":    func(ctx context.Context) error { _, err := l.DB.OutboxCounts(ctx); return err },
		"orders that nobody answered": func(ctx context.Context) error { _, err := l.DB.EndUnanswered(ctx); return err },
		"an order for a spoke": func(ctx context.Context) error {
			return l.order(ctx, store.SpawnOrder{Conn: l.conns["attic"], IdempotencyKey: "one"})
		},
		"an order for any spoke": func(ctx context.Context) error {
			return l.order(ctx, store.SpawnOrder{Anywhere: true, Among: []store.Candidate{{Conn: l.conns["attic"], Slots: 9, Age: time.Second}}})
		},
		"what a selector would kill": func(ctx context.Context) error {
			s, err := commands.ParseSelector("app=rare")
			if err != nil {
				return err
			}
			list, err := l.DB.Killable(ctx, store.MirrorTerms{Labels: s})
			return counted(len(list), 4, err)
		},
		"archiving the rest of what has a label of some value": func(ctx context.Context) error {
			s, err := commands.ParseSelector("none")
			if err != nil {
				return err
			}
			n, _, err := l.DB.ArchiveSome(ctx, store.ArchiveTerm{Labels: s, After: l.id(l.ended - 500)}, "ann")
			return counted(n, 0, err)
		},
		"archiving by a label of few": func(ctx context.Context) error {
			s, err := commands.ParseSelector("app=rare")
			if err != nil {
				return err
			}
			n, last, err := l.DB.ArchiveSome(ctx, store.ArchiveTerm{Older: 24 * time.Hour, Labels: s}, "ann")
			if err == nil && last != "" {
				err = errors.New("it goes on")
			}
			return counted(n, 0, err)
		},
		"archiving cards of a lane": func(ctx context.Context) error {
			n, _, err := l.main.ArchiveSome(ctx, backlog.ArchiveTerm{Older: 24 * time.Hour, Lane: "rare"})
			return counted(n, 0, err)
		},
		"archiving cards of a phase": func(ctx context.Context) error {
			n, _, err := l.main.ArchiveSome(ctx, backlog.ArchiveTerm{Older: 24 * time.Hour, Phase: "late"})
			return counted(n, 0, err)
		},
		"archiving the rest of what is old": func(ctx context.Context) error {
			n, _, err := l.main.ArchiveSome(ctx, backlog.ArchiveTerm{Older: 24 * time.Hour, After: l.id(l.ended - 50)})
			return counted(n, 0, err)
		},
		"what would be killed on a spoke": func(ctx context.Context) error {
			list, err := l.DB.Killable(ctx, store.MirrorTerms{Spoke: "shed"})
			return counted(len(list), 2, err)
		},
		"kills that are ordered": func(ctx context.Context) error {
			_, err := l.DB.OrderKills(ctx, []string{l.id(l.ended), l.id(l.ended - 10)}, commands.Kill{Reason: "test"}, time.Hour, "ann")
			return err
		},
		"a kill that is ordered": func(ctx context.Context) error {
			_, err := l.DB.OrderKill(ctx, commands.Kill{Task: l.id(l.ended), Reason: "test"}, time.Hour, "ann")
			return err
		},
		"the next delivery to a webhook": func(ctx context.Context) error { _, err := l.DB.NextDelivery(ctx, time.Hour); return err },
		"deliveries to webhooks that are due": func(ctx context.Context) error {
			list, err := l.DB.ClaimDeliveries(ctx, time.Millisecond)
			return counted(min(len(list), 2*store.AtOnce), 2*store.AtOnce, err)
		},
		"what waits to be delivered by a clock that was ahead": func(ctx context.Context) error { return l.DB.WaitAnew(ctx, time.Minute) },
		"what webhooks are to be told": func(ctx context.Context) error {
			done, err := l.DB.PlanDeliveries(ctx, store.Planner{Wants: func(store.Webhook, store.Event) bool { return false }, Tell: func(store.Event) store.Message { return store.Message{} }})
			return counted(done.Active, 4, err)
		},
		"deliveries to a webhook": func(ctx context.Context) error {
			list, err := l.DB.Deliveries(ctx, "00000000-0000-0000-0000-000000000001", int64(l.ended/2), pageLength)
			return counted(len(list), pageLength, err)
		},
		"a webhook":           func(ctx context.Context) error { _, err := l.DB.FindWebhook(ctx, "hook-1"); return err },
		"figures of webhooks": func(ctx context.Context) error { _, err := l.DB.WebhookFigures(ctx); return err },
		"a webhook that answers again": func(ctx context.Context) error {
			_, err := l.DB.NoteAnswers(ctx, "00000000-0000-0000-0000-000000000001", true)
			return err
		},
		"pruning where nothing is old": func(ctx context.Context) error { _, err := l.DB.Prune(ctx, 0, time.Minute); return err },
		"the work of a connection that ends": func(ctx context.Context) error {
			return l.undone(ctx, func(ctx context.Context, tx *store.Tx) error {
				return l.backlog.RevokeWork(ctx, tx, l.conns["shed"], true)
			})
		},
		"what a hub recalls of tasks that wait": func(ctx context.Context) error {
			return l.undone(ctx, func(ctx context.Context, tx *store.Tx) error {
				return l.backlog.Recall(ctx, tx, l.conns["shed"], l.ranBefore)
			})
		},
		"a digest of the history": func(ctx context.Context) error {
			_, err := l.DB.Numbering(ctx, l.conns["attic"], true, nil)
			return err
		},
	}
}

// undone does something that is rolled back.
func (l *large) undone(ctx context.Context, do func(context.Context, *store.Tx) error) error {
	undone := errors.New("undone")
	err := l.DB.Tx(ctx, "doing what is undone", func(ctx context.Context, tx *store.Tx) error { return cmp.Or(do(ctx, tx), undone) })
	if errors.Is(err, undone) {
		return nil
	}
	return err
}

const pageLength = 20

func counted(n, want int, err error) error {
	if err == nil && n != want {
		err = fmt.Errorf("%d were found, not %d", n, want)
	}
	return err
}

func ambiguous(err error) error {
	if commands.CodeOf(err) == commands.Ambiguous {
		return nil
	}
	return err
}

// Nothing that people or programs ask costs more with the length of the history or
// of the queue, whether the server has statistics of the tables or not.
func TestNothingReadsTheHistory(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]statistics{"with statistics": everything, "without": nothing, "with the sizes alone": sizes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLarge(t, pgtest.URL(t), 20_000, 5_000, known)

			for what, read := range l.readers() {
				t.Run(what, func(t *testing.T) {
					_, err := l.unwatched.GrowAuditTree(t.Context()) // pruning does: what it adds cannot be explained again
					require.NoError(t, err)
					for _, s := range l.watch.during(t, read) {
						require.Empty(t, explain(t, l.watch.config, s).Wasteful(), s.sql)
					}
				})
			}
		})
	}
}

// A planner that takes short ids for frequent, as it does in a large table, finds them by their index all the same. The tables
// are said to be ten thousand times as full as they are.
func TestAShortIDIsFoundInALargeTable(t *testing.T) {
	t.Parallel()
	l := newLarge(t, pgtest.URL(t), 20_000, 100, everything)
	_, err := owner(t, l.URL).Exec(t.Context(), `UPDATE pg_class SET reltuples = 10000 * reltuples WHERE relname IN ('tasks', 'agents', 'mirrors', 'questions', 'inquiries')`)
	require.NoError(t, err)
	readers := l.readers()
	for _, what := range []string{"an agent by its short id", "a mirror by its short id", "a short id that no mirror has", "a question by its short id", "a question of an agent on a spoke by its short id"} {
		for _, s := range l.watch.during(t, readers[what]) {
			require.Empty(t, explain(t, l.watch.config, s).Wasteful(), s.sql)
		}
	}
}

// Whoever enables a webhook holds it, and looks meanwhile for the restores that it was not told of, not at all events.
func TestAWebhookThatIsEnabledReadsRestores(t *testing.T) {
	t.Parallel()
	l := newLarge(t, pgtest.URL(t), 1_000, 100, everything)
	for _, sql := range []string{
		`INSERT INTO events (seq, at, kind, previous, state, reason, attempt, accepted) SELECT n, now(), CASE n WHEN 77 THEN 'restored' ELSE 'link' END, '', 'up', '', 0, false FROM generate_series(51, 10050) AS n`,
		`UPDATE event_numbers SET last = 10050`,
		`UPDATE webhooks SET state = 'disabled', disabled_by = 'test', disabled_at = now() WHERE name = 'hook-2'`,
		`ANALYZE events`,
	} {
		_, err := owner(t, l.URL).Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	told := 0
	p := store.Planner{
		Tell: func(e store.Event) store.Message {
			told++
			return store.Message{Prefix: "r", Number: "77", Type: "link", Body: "{}", At: e.At}
		},
		Gap: func(_, _ int64, at time.Time) store.Message {
			return store.Message{Prefix: "gap", Type: "link", Body: "{}", At: at}
		},
	}

	for _, s := range l.watch.during(t, func(ctx context.Context) error { _, err := l.DB.EnableWebhook(ctx, "hook-2", "", "ann", p); return err }) {
		require.Empty(t, explain(t, l.watch.config, s).Wasteful(), s.sql)
	}

	require.Equal(t, 1, told)
}

// Where no agent has ended nobody looks for questions to close. Else whoever does, or counts those that wait, looks at the open ones, and up the agents of these: not
// at what was closed before, nor at all agents.
func TestOpenQuestionsAreFoundAmongManyClosed(t *testing.T) {
	t.Parallel()
	l := newLarge(t, pgtest.URL(t), 20_000, 100, everything)
	for _, sql := range []string{
		`UPDATE inquiries SET outcome = 'withdrawn', answered_at = now() FROM mirrors m WHERE m.task = inquiries.task AND m.ended_at IS NOT NULL AND outcome IS NULL`,
		`INSERT INTO inquiries (conn, id, task, attempt, seq, question, options, fallback, data, asked_at, deadline, received_at, outcome, answered_at)
			SELECT conn, gen_random_uuid(), task, 1, 1, 'which?', '{}', '', '', now(), now(), now(), CASE WHEN ended_at IS NOT NULL THEN 'answered' END, CASE WHEN ended_at IS NOT NULL THEN now() END
			FROM mirrors, generate_series(1, 100) AS n WHERE ended_at IS NULL OR n <= 15`,
		`ANALYZE inquiries`,
	} {
		_, err := owner(t, l.URL).Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	open := l.Count(t, `SELECT count(*) FROM inquiries WHERE outcome IS NULL`)
	own := l.Count(t, `SELECT count(*) FROM questions WHERE outcome IS NULL`)
	require.Greater(t, open, 1000)
	for _, read := range []func(context.Context) error{
		func(ctx context.Context) error {
			n, _, err := l.DB.CloseInquiries(ctx, time.Time{})
			return counted(n, 0, err)
		},
		func(ctx context.Context) error {
			n, _, err := l.DB.QuestionFigures(ctx)
			return counted(int(n), open+own, err)
		},
	} {
		for _, s := range l.watch.during(t, read) {
			plan := explain(t, l.watch.config, s)
			require.LessOrEqual(t, plan.Reads("inquiries"), float64(open), s.sql)
			require.NotContains(t, plan.Wasteful(), "reads all of mirrors", s.sql)
		}
	}
	for _, s := range l.watch.during(t, func(ctx context.Context) error {
		_, _, err := l.DB.CloseInquiries(ctx, time.Now().Add(time.Hour))
		return err
	}) {
		plan := explain(t, l.watch.config, s)
		require.Zero(t, plan.Reads("inquiries"), s.sql)
		require.Empty(t, plan.Wasteful(), s.sql)
	}
}

// An expiry looks at what is due, and not at what will be.
func TestAnExpiryReadsWhatIsDue(t *testing.T) {
	t.Parallel()
	l := newLarge(t, pgtest.URL(t), 1_000, 5_000, everything)
	require.NoError(t, l.Exec(`UPDATE ready SET expires_at = now() - interval '1 second' WHERE task = (SELECT task FROM ready WHERE expires_at < 'infinity' LIMIT 1)`))
	ran := false

	for _, s := range l.watch.during(t, func(ctx context.Context) error { _, err := l.backlog.Sweep(ctx, time.Hour); return err }) {
		ran = ran || strings.Contains(s.sql, "'command_expired'")
		require.Empty(t, explain(t, l.watch.config, s).Wasteful(), s.sql)
	}

	require.True(t, ran)
}
