package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/internal/scale"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// reading are the methods that change nothing.
var reading = []string{"DB.InputFor", "DB.WorkDue", "DB.Era", "DB.Unknown", "DB.Unwanted", "DB.WorkHere", "DB.RetriesBefore", "DB.ProvenanceOf", "DB.Answered", "DB.PeerCheckpoints", "DB.AuditLeaves", "DB.AuditStrays", "DB.CheckAuditTail", "DB.LastCheckpoint", "DB.ProveAudit", "DB.AuditTrail", "DB.Before", "DB.DueSchedules", "DB.FindSchedule", "DB.Fires", "DB.NextSchedule", "DB.Schedules", "DB.Await", "DB.Listener", "DB.Beat", "DB.Beats", "DB.Close", "DB.Connections", "DB.FindInvite", "DB.FindMirrors", "DB.Freezes", "DB.FrozenHere", "DB.Grants", "DB.Webhooks", "DB.FindWebhook", "DB.Deliveries", "DB.FindDelivery", "DB.NextDelivery", "DB.WebhookFigures", "DB.Taken",
	"DB.InviteKeys", "DB.Invites", "DB.KeysOf", "DB.Killable", "DB.KillsOver", "DB.KeysView", "DB.LastEvent", "DB.EventsAfter", "DB.LastNumbers", "DB.ListMirrors", "DB.MirrorsOf", "DB.StandOf", "DB.NewSince", "DB.NextUnanswered", "DB.LacksOutput", "DB.Log", "DB.LogConns", "DB.LogsOf", "DB.LongSnapshot", "DB.BoundInbox", "DB.MeasureInbox", "DB.FullInboxes", "DB.RefusedAbout", "DB.RefusedOf", "DB.NewCursor", "DB.Now", "DB.Offset", "DB.Numbering", "DB.OutboxCounts", "DB.RunningCounts", "DB.Outboxes", "DB.Outages", "DB.Sizes", "DB.Migrated", "DB.Read", "DB.ReadIn", "DB.Receipts", "DB.Retention", "DB.Self", "DB.Signer", "DB.SignerOf", "DB.StoredOf", "DB.Superuser", "DB.Tokens", "DB.UseToken", "DB.ValidTokens", "DB.Verifier", "DB.Watch", "DB.Inquiries", "DB.InquiriesNamed", "DB.OpenInquiries", "DB.QuestionFigures"}

// scene is an instance on which something is about to be done.
type scene struct {
	testing.TB
	*storetest.Side
}

// met is a scene with a peer.
func (s scene) met(a store.Authority) scene {
	s.Meet(s, a)
	return s
}

// archivable is an agent that has ended.
func (s scene) archivable() string {
	task := s.ordered()
	require.NoError(s, s.Exec(`UPDATE mirrors SET state = 'completed', ended_at = now() WHERE task = $1`, task))
	return task
}

func (s scene) spawn() store.SpawnOrder {
	return store.SpawnOrder{Conn: s.Conn.ID, Life: time.Hour, Actor: "test",
		Spawn: &commands.Spawn{Task: storetest.NewID(), Runtime: commands.RuntimeNoop}}
}

func (s scene) ordered() string {
	o := s.met(store.Commands).spawn()
	_, err := s.DB.OrderSpawns(s.Context(), []store.SpawnOrder{o})
	require.NoError(s, err)
	return o.Spawn.Task
}

// aSchedule orders nothing that is started.
func aSchedule() store.Schedule {
	return store.Schedule{ID: storetest.NewID(), Name: "nightly", Cron: "0 3 * * *", Zone: "UTC", Overlap: store.OverlapSkip, CreatedBy: "test",
		Template: store.Template{Any: true, Spawn: &commands.Spawn{Runtime: commands.RuntimeNoop}}}
}

func (s scene) scheduled() string {
	v := aSchedule()
	require.NoError(s, s.met(store.Commands).DB.AddSchedule(s.Context(), v, nil, func(now time.Time) time.Time { return now.Add(-time.Minute) }))
	return v.ID
}

// firing orders what a schedule has.
func firing(side *storetest.Side, task string) func(store.Schedule, func() (commands.Values, error), time.Time) store.Firing {
	return func(_ store.Schedule, _ func() (commands.Values, error), now time.Time) store.Firing {
		o := store.SpawnOrder{Conn: side.Conn.ID, Life: time.Hour, Actor: "test", IdempotencyKey: "schedule/nightly", Spawn: &commands.Spawn{Task: task, Runtime: commands.RuntimeNoop}}
		return store.Firing{Next: now.Add(time.Hour), Order: &o, Actor: "test"}
	}
}

func (s scene) invited() (id string) {
	id = storetest.NewID()
	_, err := s.DB.AddInvite(s.Context(), store.Invite{ID: id, Name: "attic", ProofKey: []byte("k"), TTL: time.Hour, Uses: 3, Actor: "test"})
	require.NoError(s, err)
	return id
}

// writing are all other methods, by name; what follows a comma says how.
var writing = map[string]func(s scene) storetest.Act{
	"DB.Tx": func(s scene) storetest.Act {
		s.met(store.Commands)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.Tx(ctx, "counting", func(ctx context.Context, tx *store.Tx) error {
				tx.Audit(store.AuditRow{Actor: "test", Action: "counted"})
				tx.Send(store.Draft{Conn: s.Conn.ID, Body: &commands.Status{Task: storetest.NewID()}})
				_, err := tx.Exec(ctx, `UPDATE sequences SET last = last + 10`)
				return err
			})
		}
	},
	"DB.TxIn": func(scene) storetest.Act {
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.TxIn(ctx, "noting", "red", func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO tallies (workspace, lane, what, n) VALUES ('red', 'default', 'completed', 1)`)
				return err
			})
		}
	},
	"DB.TakeIn": func(s scene) storetest.Act {
		s.met(store.Obeys)
		id := storetest.NewID()
		now := time.Now()
		m := store.Incoming{Conn: s.Conn.ID, Envelope: []byte("w"), Asks: true, Body: &commands.Status{Task: storetest.NewID()}, Header: signing.Header{ID: id, Kind: string(commands.StatusKind),
			Kid: signing.KeyIDOf(storetest.Signer(s, 8).Public()), Conn: s.Conn.ID, Epoch: 1, Seq: 1, Iat: now.UnixMilli(), Exp: now.Add(time.Hour).UnixMilli(), Wsp: store.Workspace, Body: signing.BodyRef{SHA256: strings.Repeat("ab", 32)}}}
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			got := m
			out, err := s.DB.TakeIn(ctx, s.Conn.ID, 20, []*store.Incoming{&got}, func(_ context.Context, tx *store.Tx, _ store.Standing, fresh []*store.Incoming) error {
				for _, f := range fresh {
					f.Note(tx, "taken", "")
					f.Answer(tx, &commands.TaskState{Task: storetest.NewID(), State: commands.Queued})
				}
				return nil
			})
			return fmt.Sprint(got.Code, len(out.Again), out.Stored.Through), err
		}
	},
	"DB.Confirm": func(s scene) storetest.Act {
		s.ordered()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.Confirm(ctx, s.Peer, commands.Numbers{Through: 1})
		}
	},
	"DB.SealAhead": func(s scene) storetest.Act {
		s.ordered()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.SealAhead(ctx, s.Conn.ID, 1, 1)
		}
	},
	"DB.Compare": func(s scene) storetest.Act {
		s.ordered()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.Compare(ctx, s.Peer, commands.Numbering{Stored: commands.Numbers{Through: 1000}}, 0, 20)
		}
	},
	"DB.BeginIncarnation": func(s scene) storetest.Act {
		s.met(store.Obeys)
		_, err := s.DB.BeginIncarnation(s.Context(), []string{""}, "the first one")
		require.NoError(s, err)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.BeginIncarnation(ctx, []string{"another one"}, "the next one")
		}
	},
	"DB.NotePeerState": func(s scene) storetest.Act {
		s.met(store.Obeys)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.NotePeerState(ctx, s.Conn, s.Peer.Key, store.PeerState{State: store.Suspended, By: "uid:0", Reason: "holiday"})
		}
	},
	"DB.AddSchedule": func(s scene) storetest.Act {
		v := aSchedule()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.AddSchedule(ctx, v, nil, func(now time.Time) time.Time { return now.Add(time.Hour) })
		}
	},
	"DB.ChangeSchedule": func(s scene) storetest.Act {
		id := s.scheduled()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			v, err := s.DB.ChangeSchedule(ctx, id, "test", func(v *store.Schedule, _ time.Time) (string, string, error) {
				v.State, v.Next = store.SchedulePaused, nil
				return "schedule.paused", "holiday", nil
			})
			return v.State, err
		}
	},
	"DB.RemoveSchedule": func(s scene) storetest.Act {
		id := s.scheduled()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			v, err := s.DB.RemoveSchedule(ctx, id, "test", "not needed")
			return v.Name, err
		}
	},
	"DB.Fire": func(s scene) storetest.Act {
		id, task := s.scheduled(), storetest.NewID()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			f, err := s.DB.Fire(ctx, id, firing(s, task))
			if f == nil {
				return nil, err
			}
			return f.Outcome, err
		}
	},
	"DB.RunSchedule": func(s scene) storetest.Act {
		id, task := s.scheduled(), storetest.NewID()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			f, err := s.DB.RunSchedule(ctx, id, firing(s, task))
			if f == nil {
				return nil, err
			}
			return f.Outcome, err
		}
	},
	"DB.NoteFreeze": func(s scene) storetest.Act {
		s.met(store.Obeys)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.NoteFreeze(ctx, s.Conn, s.Peer.Key, commands.Freeze{Number: 7, Frozen: true, By: "uid:0", Reason: "bad deploy"}, []byte("m"))
		}
	},
	"DB.HoldStarts": func(s scene) storetest.Act {
		s.met(store.Obeys)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.HoldStarts(ctx, s.Conn.ID, time.Minute)
		}
	},
	"DB.LetStart": func(s scene) storetest.Act {
		s.met(store.Obeys)
		require.NoError(s, s.DB.HoldStarts(s.Context(), s.Conn.ID, time.Minute))
		return func(ctx context.Context, s *storetest.Side) (any, error) { return s.DB.LetStart(ctx, s.Conn.ID, 0) }
	},
	"DB.NoteEvent": func(s scene) storetest.Act {
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.NoteEvent(ctx, store.LinkEvent, "", "up")
		}
	},
	"DB.KeepCheckpoint": func(s scene) storetest.Act {
		s.met(store.Obeys)
		c := store.Checkpoint{Checkpoint: audittree.Checkpoint{Instance: s.Conn.Peer, Size: 3, At: time.Now()}}
		var err error
		c.Note, err = c.Sign(storetest.Signer(s, 7))
		require.NoError(s, err)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.KeepCheckpoint(ctx, s.Conn, c, nil)
		}
	},
	"DB.GrowAuditTree": func(s scene) storetest.Act {
		s.ordered()
		return func(ctx context.Context, s *storetest.Side) (any, error) { return s.DB.GrowAuditTree(ctx) }
	},
	"DB.Checkpoint": func(s scene) storetest.Act {
		s.ordered()
		_, err := s.DB.GrowAuditTree(s.Context())
		require.NoError(s, err)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			c, err := s.DB.Checkpoint(ctx, s.Identity)
			return c.Size, err
		}
	},
	"DB.NumberEvents": func(s scene) storetest.Act {
		require.NoError(s, s.DB.NoteEvent(s.Context(), store.LinkEvent, "", "up"))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			n, last, err := s.DB.NumberEvents(ctx, 10)
			return []int64{int64(n), last}, err
		}
	},
	"DB.NoteRefused": func(s scene) storetest.Act {
		s.ordered()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			_, err := s.DB.NoteRefused(ctx, s.Peer, []commands.RefusedReport{{Seq: 1, Code: commands.ResultClash}})
			return nil, err
		}
	},
	"DB.NoteIncarnation": func(s scene) storetest.Act {
		s.met(store.Obeys)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.NoteIncarnation(ctx, s.Conn.ID, "a life")
		}
	},
	"DB.Recall": func(s scene) storetest.Act {
		s.met(store.Obeys)
		require.NoError(s, s.Exec(`UPDATE sequences SET recall_from = 7, last = 9`))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.Recall(ctx, s.Peer, &commands.Recalled{From: 7, Through: 9}, func(_ context.Context, tx *store.Tx) error {
				tx.Audit(store.AuditRow{Actor: "test", Action: "recalled"})
				return nil
			})
		}
	},
	"DB.SetGrant": func(s scene) storetest.Act {
		s.met(store.Obeys)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			g, err := s.DB.SetGrant(ctx, s.Conn.ID, "test", func(g *store.GrantTerms) { g.Weight++ })
			return g.Weight, err
		}
	},
	"DB.Serve": func(s scene) storetest.Act {
		s.met(store.Commands)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			list, err := s.DB.Serve(ctx, "test")
			return len(list), err
		}
	},
	"DB.Audit": func(scene) storetest.Act {
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.Audit(ctx, store.AuditRow{Actor: "test", Action: "seen"}, store.AuditRow{Actor: "test", Action: "heard"})
		}
	},
	"DB.AddInvite": func(scene) storetest.Act {
		id := storetest.NewID()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.AddInvite(ctx, store.Invite{ID: id, Name: "attic", ProofKey: []byte("k"), TTL: time.Hour, Uses: 3, Actor: "test"})
		}
	},
	"DB.AddToken": func(scene) storetest.Act {
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.AddToken(ctx, newToken("aaaaaaaaaaaa", "ci"))
		}
	},
	"DB.RevokeToken": func(s scene) storetest.Act {
		_, err := s.DB.AddToken(s.Context(), newToken("aaaaaaaaaaaa", "ci"))
		require.NoError(s, err)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.RevokeToken(ctx, "ci", "late", "test")
		}
	},
	"DB.ConfirmToken": func(s scene) storetest.Act {
		_, err := s.DB.AddToken(s.Context(), newToken("aaaaaaaaaaaa", "ci"))
		require.NoError(s, err)
		require.NoError(s, s.Exec(`UPDATE tokens SET restored = true`))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.ConfirmToken(ctx, "ci", "known", "test")
		}
	},
	"DB.RevokeInvite": func(s scene) storetest.Act {
		id := s.invited()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.RevokeInvite(ctx, id, "late", "test")
		}
	},
	"DB.AddConnection": func(s scene) storetest.Act {
		n := store.NewConnection{Invite: s.invited(), Grant: storetest.Terms, Actor: "test",
			Connection: store.Connection{ID: storetest.NewID(), Peer: signing.InstanceIDOf(storetest.Signer(s, 7).Public()), Name: "attic", Authority: store.Commands, State: store.Pending, LinkKey: "U"},
			Keys:       store.PeerKeys{Identity: storetest.Signer(s, 7).Public(), Signing: storetest.Signer(s, 8).Public(), Sealing: []byte(strings.Repeat("s", 32))}}
		return func(ctx context.Context, s *storetest.Side) (any, error) { return s.DB.AddConnection(ctx, n) }
	},
	"DB.CloseVoid": func(s scene) storetest.Act {
		s.met(store.Obeys)
		require.NoError(s, s.Exec(`UPDATE sequences SET stored = '{[1,2],[5,6]}', peer_base = 100`))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.CloseVoid(ctx, s.Peer, []commands.Range{{From: 3, To: 4}})
		}
	},
	"DB.ChangeKey": func(scene) storetest.Act {
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.ChangeKey(ctx, store.KeyChange{Revoke: "current", Reason: "copied", Actor: "test"})
		}
	},
	"DB.TendKeys": func(s scene) storetest.Act {
		s.met(store.Commands)
		require.NoError(s, s.Exec(`UPDATE instance SET keys = keys + 1`)) // a key set that the peer does not know
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			done, _, err := s.DB.TendKeys(ctx)
			return done, err
		}
	},
	"DB.NoteEndTold": func(s scene) storetest.Act {
		s.met(store.Commands)
		require.NoError(s, s.Exec(`UPDATE connections SET state = 'revoked'`))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.NoteEndTold(ctx, s.Conn.ID)
		}
	},
	"DB.SetConnectionState": func(s scene) storetest.Act {
		s.met(store.Commands)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.SetConnectionState(ctx, s.Conn.ID, store.Suspended, "holiday", "test", nil)
		}
	},
	"DB.ResumeConnection": func(s scene) storetest.Act {
		s.met(store.Obeys)
		require.NoError(s, s.Exec(`UPDATE connections SET state = 'suspended', state_by = 'lease'`))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.ResumeConnection(ctx, s.Conn.ID, "lease", "heard again", "lease")
		}
	},
	"DB.OrderSpawns": func(s scene) storetest.Act {
		a := s.met(store.Commands).spawn()
		b := s.spawn()
		b.IdempotencyKey = "once"
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			out, err := s.DB.OrderSpawns(ctx, []store.SpawnOrder{a, b})
			return out, err
		}
	},
	"DB.WorkCame": func(s scene) storetest.Act {
		s.met(store.Commands)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.WorkCame(ctx, s.Conn.ID, commands.Blob{Digest: fmt.Sprintf("sha256-%064d", 1), Size: 1})
		}
	},
	"DB.WorkLost": func(s scene) storetest.Act {
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			_, err := s.DB.WorkLost(ctx, storetest.NewID(), commands.Blob{Digest: fmt.Sprintf("sha256-%064d", 1), Size: 1}) // whether it was is known by who asked first
			return nil, err
		}
	},
	"DB.KeepBlob": func(s scene) storetest.Act {
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.KeepBlob(ctx, commands.Blob{Digest: fmt.Sprintf("sha256-%064d", 1), Size: 1}, "test")
		}
	},
	"DB.ForgetBlobs": func(s scene) storetest.Act {
		require.NoError(s, s.DB.KeepBlob(s.Context(), commands.Blob{Digest: fmt.Sprintf("sha256-%064d", 1), Size: 1}, "test"))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			_, err := s.DB.ForgetBlobs(ctx, 0) // how many is known by who asked first
			return nil, err
		}
	},
	"DB.OrderKill": func(s scene) storetest.Act {
		task := s.ordered()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.OrderKill(ctx, commands.Kill{Task: task, Reason: "enough"}, time.Hour, "test")
		}
	},
	"DB.OrderKills": func(s scene) storetest.Act {
		tasks := []string{s.ordered()}
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.OrderKills(ctx, tasks, commands.Kill{Reason: "enough"}, time.Hour, "test")
		}
	},
	"DB.OrderPause": func(s scene) storetest.Act {
		task := s.ordered()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			_, _, err := s.DB.OrderPause(ctx, commands.Pause{Task: task, Paused: true, Reason: "so"}, time.Hour, "test")
			return nil, err
		}
	},
	"DB.OrderReview": func(s scene) storetest.Act {
		task := s.ordered()
		require.NoError(s, s.Exec(`UPDATE mirrors SET state = 'in_review', attempt = 1 WHERE task = $1`, task))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			_, _, err := s.DB.OrderReview(ctx, commands.Review{Task: task, Attempt: 1, Verdict: commands.Approve, By: "test"})
			return nil, err
		}
	},
	"DB.Archive": func(s scene) storetest.Act {
		task := s.archivable()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.Archive(ctx, task, true, "test")
		}
	},
	"DB.ArchiveSome": func(s scene) storetest.Act {
		s.archivable()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			n, _, err := s.DB.ArchiveSome(ctx, store.ArchiveTerm{}, "test")
			return n, err
		}
	},
	"DB.Label": func(s scene) storetest.Act {
		task := s.archivable()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.Label(ctx, task, commands.Labels{"app": "web"}, "test")
		}
	},
	"DB.OrderAnswer": func(s scene) storetest.Act {
		a := commands.Answer{Task: s.ordered(), Question: storetest.NewID(), Answer: "yes", By: "test"}
		require.NoError(s, s.Exec(`INSERT INTO inquiries (conn, id, task, attempt, seq, question, options, fallback, data, asked_at, deadline)
			SELECT conn, $2, task, 1, 1, 'may I?', '{}', '', '', now(), now() + interval '1 hour' FROM mirrors WHERE task = $1`, a.Task, a.Question))
		return func(ctx context.Context, s *storetest.Side) (any, error) { return nil, s.DB.OrderAnswer(ctx, a) }
	},
	"DB.CloseInquiries": func(s scene) storetest.Act {
		task := s.ordered()
		require.NoError(s, s.Exec(`INSERT INTO inquiries (conn, id, task, attempt, seq, question, options, fallback, data, asked_at, deadline)
			SELECT conn, task, task, 1, 1, 'may I?', '{}', '', '', now(), now() + interval '1 hour' FROM mirrors WHERE task = $1`, task))
		require.NoError(s, s.Exec(`UPDATE mirrors SET state = 'failed', ended_at = now() WHERE task = $1`, task))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			n, _, err := s.DB.CloseInquiries(ctx, time.Time{})
			return n, err
		}
	},
	"DB.OrderStatus": func(s scene) storetest.Act {
		task := s.ordered()
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			id, err := s.DB.OrderStatus(ctx, task, time.Hour, "test")
			if n, wrong := s.TryCount(ctx, `SELECT count(*) FROM outbox WHERE id = $1`, id); wrong != nil || n != 1 {
				return "the question is not in the outbox", err
			}
			return id, err
		}
	},
	"DB.EndUnanswered": func(s scene) storetest.Act {
		s.ordered()
		require.NoError(s, s.Exec(`UPDATE mirrors SET expires_at = now() - interval '1 year'`))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			tasks, err := s.DB.EndUnanswered(ctx)
			return len(tasks), err
		}
	},
	"DB.SaveBeats": func(s scene) storetest.Act {
		s.met(store.Commands)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return s.DB.SaveBeats(ctx, []store.Beat{{Conn: s.Conn.ID, Body: commands.Heartbeat{IntervalMS: 1000}}})
		}
	},
	"DB.GrowLogs": func(s scene) storetest.Act {
		return growLogs(s.ordered())
	},
	"DB.DropSegments": func(s scene) storetest.Act {
		task := s.ordered()
		_, err := growLogs(task)(s.Context(), s.Side)
		require.NoError(s, err)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.DropSegments(ctx, []store.LogSegment{{Task: task}}, nil)
		}
	},
	"DB.OldSegments": func(s scene) storetest.Act {
		task := s.ordered()
		_, err := growLogs(task)(s.Context(), s.Side)
		require.NoError(s, err)
		require.NoError(s, s.Exec(`INSERT INTO log_segments (task, base, conn, bytes) VALUES ($1, 9, $2, 9)`, task, s.Conn.ID))
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			list, err := s.DB.OldSegments(ctx, s.Conn.ID, store.LogBound{Bytes: 4096, Age: time.Hour})
			return len(list), err
		}
	},
	"DB.SetRetention": func(scene) storetest.Act {
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.SetRetention(ctx, "tasks", 48*time.Hour, "ann")
		}
	},
	"DB.NoteFull": func(s scene) storetest.Act {
		s.met(store.Commands)
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			_, err := s.DB.NoteFull(ctx, s.Conn.ID)
			return nil, err
		}
	},
	"DB.NoteRoom": func(s scene) storetest.Act {
		s.met(store.Commands)
		_, err := s.DB.NoteFull(s.Context(), s.Conn.ID)
		require.NoError(s, err)
		return func(ctx context.Context, s *storetest.Side) (any, error) { return nil, s.DB.NoteRoom(ctx, s.Conn.ID) }
	},
	"DB.NoteLogBounds": func(scene) storetest.Act {
		return func(ctx context.Context, s *storetest.Side) (any, error) {
			return nil, s.DB.NoteLogBounds(ctx, 7*24*time.Hour, "1 MiB of each agent")
		}
	},
	"DB.Prune": func(s scene) storetest.Act {
		s.ordered()
		require.NoError(s, s.Exec(`UPDATE outbox SET exp = now() - interval '1 year', created_at = now() - interval '1 year'`))
		require.NoError(s, s.Exec(`UPDATE confirmed SET numbers = '{[1,9]}'`))
		require.NoError(s, s.Exec(`INSERT INTO confirmed_before (conn, at, numbers) SELECT conn, now() - interval '1 year', numbers FROM confirmed`))
		return func(ctx context.Context, s *storetest.Side) (any, error) { return s.DB.Prune(ctx, 0, time.Minute) }
	},
}

// growLogs stores the first piece of a task's output.
func growLogs(task string) storetest.Act {
	return func(ctx context.Context, s *storetest.Side) (any, error) {
		return nil, s.DB.GrowLogs(ctx, s.Conn.ID, nil, []*store.Log{{Task: task, Tail: 9, Segments: []store.LogSegment{{Task: task, Bytes: 9, New: true}},
			Streams: []store.LogStream{{Task: task, Attempt: 1, Stream: "stdout", Through: 3, Ended: &commands.LogEnd{Cut: true}}}}})
	}
}

func TestALostAnswerToACommitRepeatsNothing(t *testing.T) {
	t.Parallel()
	for name, ready := range scale.SomeCases(t, 12, writing) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.LoseAnswers(t, func(t testing.TB, s *storetest.Side) storetest.Act { return ready(scene{t, s}) })
		})
	}
}

// A method that is new belongs to one of the two lists.
func TestEveryMethodIsKnownToReadOrToWrite(t *testing.T) {
	t.Parallel()

	known := slices.Concat(reading, slices.Collect(maps.Keys(writing)))

	require.ElementsMatch(t, known, storetest.Methods(&store.DB{}))
}
