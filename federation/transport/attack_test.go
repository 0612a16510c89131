package transport

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// rawPeer connects with the key of an admitted peer and nothing of ours in
// between: what it does not do, the server must forbid.
func rawPeer(t testing.TB, h *Hub, name string) *nats.Conn {
	t.Helper()
	key := ed25519.NewKeyFromSeed(seed(name))
	return raw(t, h, nats.CustomInboxPrefix(inbox(name)),
		nats.Nkey(nkeyOf(t, name), func(nonce []byte) ([]byte, error) { return ed25519.Sign(key, nonce), nil }))
}

func raw(t testing.TB, h *Hub, as ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("tls://"+h.Addr(), append(as,
		nats.Secure(clientTLS([]string{Pin(h.Certificate)})),
		nats.TLSHandshakeFirst(),
		nats.NoReconnect(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// A robbery is a hub with two peers: the attacker, as a raw connection, and a
// victim that holds one command and has not acknowledged it.
type robbery struct {
	h        *Hub
	attacker *nats.Conn
	inbox    string // of the attacker, where it may listen

	victimsJS jetstream.JetStream
	held      jetstream.Msg

	mu   sync.Mutex
	loot []string
}

func newRobbery(t *testing.T) *robbery {
	t.Helper()
	r := &robbery{h: startHub(t, nil)}
	admit(t, r.h, "thief", "victim")
	requireSent(t, r.h.Publish(t.Context(), append(spawns("victim", commands.QueueRun, "for-victim", "later"), spawns("thief", commands.QueueRun, "for-thief")...)))
	r.attacker = rawPeer(t, r.h, "thief")
	r.inbox = r.attacker.NewInbox()
	_, err := r.attacker.Subscribe(r.inbox+".*", r.got)
	require.NoError(t, err)
	r.victimsJS, err = jetstream.NewWithAPIPrefix(rawPeer(t, r.h, "victim"), hubAPI)
	require.NoError(t, err)
	consumer, err := r.victimsJS.Consumer(t.Context(), streamCommands, consumerName("victim", commands.QueueRun))
	require.NoError(t, err)
	r.held, err = consumer.Next(jetstream.FetchMaxWait(patience))
	require.NoError(t, err)
	return r
}

func (r *robbery) got(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loot = append(r.loot, m.Subject+" "+string(m.Data))
}

// listen subscribes to something the attacker may not hear.
func (r *robbery) listen(t *testing.T, subject string) {
	t.Helper()
	plain, err := r.attacker.Subscribe(subject, r.got)
	require.NoError(t, err)
	queue, err := r.attacker.QueueSubscribe(subject, "workers", r.got)
	require.NoError(t, err)
	// A connection has 64 subscriptions at most.
	t.Cleanup(func() { _, _ = plain.Unsubscribe(), queue.Unsubscribe() })
}

// ask sends a request whose answer would be loot.
func (r *robbery) ask(t *testing.T, subject, body string) {
	t.Helper()
	require.NoError(t, r.attacker.PublishRequest(subject, r.inbox+".x", []byte(body)))
}

// settle returns when everything sent so far has had its effect: a request
// that is allowed has gone the same way and its answer is back.
func (r *robbery) settle(t *testing.T) {
	t.Helper()
	_, err := r.attacker.Request(hubAPI+".CONSUMER.INFO.COMMANDS."+consumerName("thief", commands.QueueRun), nil, patience)
	require.NoError(t, err)
	require.NoError(t, r.h.main.get().nc.Flush())
	require.NoError(t, r.attacker.Flush())
}

// requireUnharmed checks that the victim has what it had and that nothing was
// said in its name.
func (r *robbery) requireUnharmed(t *testing.T) {
	t.Helper()
	r.settle(t)
	r.mu.Lock()
	require.Empty(t, r.loot)
	r.mu.Unlock()
	js := r.h.main.get().js
	stream, err := js.Stream(t.Context(), streamCommands)
	require.NoError(t, err)
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{commandSubject("victim", commands.QueueRun, "spawn"): 2, commandSubject("thief", commands.QueueRun, "spawn"): 1}, info.State.Subjects)
	consumer, err := js.Consumer(t.Context(), streamCommands, consumerName("victim", commands.QueueRun))
	require.NoError(t, err)
	require.Equal(t, 1, consumer.CachedInfo().NumAckPending)
	require.Equal(t, uint64(1), consumer.CachedInfo().NumPending)
	for _, g := range groups {
		require.Zero(t, waiting(t, r.h, g.stream("victim")))
	}
}

// The numbers are those of the isolation matrix in the design.
func TestAPeerReachesNothingButItsOwn(t *testing.T) {
	t.Parallel()
	r := newRobbery(t)
	victimsAck := r.held.Reply()
	send := func(t *testing.T, subject, reply string, header ...string) {
		m := &nats.Msg{Subject: subject, Reply: reply, Data: []byte("forged"), Header: nats.Header{}}
		for i := 0; i < len(header); i += 2 {
			m.Header.Set(header[i], header[i+1])
		}
		require.NoError(t, r.attacker.PublishMsg(m))
	}
	attacks := map[string]func(t *testing.T){
		"1-3 listening to commands of others": func(t *testing.T) {
			for _, s := range []string{"mesh.cmd.victim.run.spawn", "mesh.cmd.victim.>", "mesh.cmd.>", "mesh.>", ">", "*.cmd.victim.*.*", "*.*.*.*.*"} {
				r.listen(t, s)
			}
			// One that is on its way while the attacker listens.
			requireSent(t, r.h.Publish(t.Context(), spawns("victim", commands.QueueControl, "overheard")))
			consumer, err := r.victimsJS.Consumer(t.Context(), streamCommands, consumerName("victim", commands.QueueControl))
			require.NoError(t, err)
			m, err := consumer.Next(jetstream.FetchMaxWait(patience))
			require.NoError(t, err)
			require.NoError(t, m.DoubleAck(t.Context()))
		},
		"4 pulling from another's queue": func(t *testing.T) {
			for _, api := range []string{"$JS.API", "$JS.hub.API", hubAPI} {
				for _, queue := range []string{"victim_run", "victim_ctl"} {
					r.ask(t, api+".CONSUMER.MSG.NEXT.COMMANDS."+queue, "")
					r.ask(t, api+".CONSUMER.INFO.COMMANDS."+queue, "")
				}
				for _, g := range groups {
					r.ask(t, api+".CONSUMER.MSG.NEXT."+g.stream("victim")+"."+takeName, "")
					r.ask(t, api+".CONSUMER.MSG.NEXT."+g.stream("thief")+"."+takeName, "")
				}
			}
		},
		"5 acknowledging another's command": func(t *testing.T) {
			for _, body := range []string{"+TERM", "+ACK", "-NAK", "+WPI", "+NXT"} {
				r.ask(t, victimsAck, body)
			}
		},
		"6 speaking as another or as the hub": func(t *testing.T) {
			for _, s := range []string{
				"mesh.rpt.victim.evt", "mesh.rpt.victim.res", "mesh.hb.victim", "mesh.cmd.victim.run.spawn", "mesh.cmd.thief.run.spawn",
				"mesh.cmd.thief.ctl.kill", "mesh.rpt.thief.cmd", "mesh.rpt.thief", "mesh.join.ABCDEFGHIJKLMNOP.hello",
			} {
				send(t, s, "")
			}
		},
		"8 having the hub answer into another's subject": func(t *testing.T) {
			for _, s := range []string{"mesh.cmd.victim.run.spawn", "mesh.rpt.victim.evt", "mesh.hb.victim"} {
				send(t, "mesh.rpt.thief.evt", s)
			}
		},
		"9 having the server answer into another's subject": func(t *testing.T) {
			send(t, hubAPI+".CONSUMER.INFO.COMMANDS.thief_run", "mesh.rpt.victim.evt")
			send(t, hubAPI+".CONSUMER.MSG.NEXT.COMMANDS.thief_ctl", "mesh.rpt.victim.evt")
			send(t, hubAPI+".CONSUMER.MSG.NEXT.COMMANDS.thief_ctl", "mesh.cmd.victim.run.spawn")
		},
		"10 administering": func(t *testing.T) {
			for _, api := range []string{"$JS.API", "$JS.hub.API", hubAPI} {
				for _, call := range []string{
					"INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.COMMANDS", "STREAM.CREATE.OWN", "STREAM.UPDATE.COMMANDS", "STREAM.PURGE.COMMANDS",
					"STREAM.DELETE.COMMANDS", "STREAM.MSG.GET.COMMANDS", "STREAM.MSG.DELETE.COMMANDS", "STREAM.SNAPSHOT.COMMANDS", "STREAM.RESTORE.COMMANDS",
					"DIRECT.GET.COMMANDS", "DIRECT.GET.COMMANDS.mesh.cmd.victim.run.spawn", "CONSUMER.NAMES.COMMANDS", "CONSUMER.LIST.COMMANDS",
					"CONSUMER.CREATE.COMMANDS", "CONSUMER.CREATE.COMMANDS.own", "CONSUMER.DURABLE.CREATE.COMMANDS.own", "CONSUMER.DELETE.COMMANDS.victim_run",
					"CONSUMER.RESET.COMMANDS.victim_run", "CONSUMER.RESET.COMMANDS.thief_run", "CONSUMER.PAUSE.COMMANDS.victim_run",
					"CONSUMER.UNPIN.COMMANDS.victim_run", "META.LEADER.STEPDOWN", "ACCOUNT.PURGE.HUB", "SERVER.REMOVE",
				} {
					r.ask(t, api+"."+call, `{"seq":1}`)
				}
			}
		},
		"11 listening at inboxes and inside": func(t *testing.T) {
			for _, s := range []string{"_INBOX.>", "_INBOX_victim.>", "_INBOX_*.>", "_R_.>", "$JS.>", "$JS.ACK.>", "$JS.EVENT.>", "$SYS.>", "$KV.>", "$G.>", "_GR_.>", "$MQTT.>"} {
				r.listen(t, s)
			}
		},
		"12 asking the system account": func(t *testing.T) {
			for _, s := range []string{"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.HUB.CONNZ", "$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.STATZ"} {
				r.ask(t, s, "{}")
			}
		},
		"13 having a trace sent elsewhere": func(t *testing.T) {
			for _, dest := range []string{"mesh.cmd.victim.run.spawn", "mesh.rpt.victim.evt", "mesh.rpt.thief.cmd"} {
				send(t, "mesh.rpt.thief.evt", "", "Nats-Trace-Dest", dest)
				send(t, hubAPI+".CONSUMER.INFO.COMMANDS.thief_run", r.inbox+".x", "Nats-Trace-Dest", dest, "Nats-Trace-Only", "true")
			}
		},
		"19 a reply that rewrites the subject": func(t *testing.T) {
			for _, s := range []string{"$JS.ACK.s.c.1.1.1.1.0@mesh.rpt.victim.evt", "$JS.ACK.COMMANDS.thief_run.1.1.1.1.0@mesh.cmd.victim.run.spawn", "_R_.x.y@mesh.rpt.victim.evt"} {
				send(t, "mesh.rpt.thief.evt", s)
			}
		},
		"20 a reply that acknowledges another's command": func(t *testing.T) {
			own := "$JS.ACK.COMMANDS.thief_run" + strings.TrimPrefix(victimsAck, "$JS.ACK.COMMANDS.victim_run")
			send(t, own, victimsAck)
			send(t, hubAPI+".CONSUMER.INFO.COMMANDS.thief_run", victimsAck)
			send(t, "mesh.rpt.thief.evt", victimsAck)
		},
		"21 headers that make the stream do things": func(t *testing.T) {
			for _, h := range [][2]string{
				{"Nats-Rollup", "all"}, {"Nats-Rollup", "sub"}, {"Nats-Schedule", "@every 1s"}, {"Nats-Schedule-Target", "mesh.rpt.victim.evt"},
				{"Nats-Batch-Id", "b"}, {"Nats-Incr", "+1"}, {"Nats-Msg-Size", "1"},
			} {
				send(t, "mesh.rpt.thief.evt", "", h[0], h[1])
			}
			send(t, "mesh.rpt.thief.evt", "", "Nats-Schedule", "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target", "mesh.rpt.victim.evt")
		},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			attack(t)

			r.requireUnharmed(t)
		})
	}

	// The same connection still does what it may, so nothing above was
	// refused for want of a connection.
	own, err := jetstream.NewWithAPIPrefix(r.attacker, hubAPI)
	require.NoError(t, err)
	consumer, err := own.Consumer(t.Context(), streamCommands, consumerName("thief", commands.QueueRun))
	require.NoError(t, err)
	m, err := consumer.Next(jetstream.FetchMaxWait(patience))
	require.NoError(t, err)
	require.NoError(t, m.DoubleAck(t.Context()))
	ack, err := own.Publish(t.Context(), "mesh.rpt.thief.evt", []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, groupReports.stream("thief"), ack.Stream)
}

// Row 17: whoever knows the id of another's next report gains nothing by being
// first with it: a peer's repetitions are looked for among its own reports.
func TestATakenIDIsNotATakenName(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "thief", "victim")
	thief, victim := startLink(t, h, "thief"), startLink(t, h, "victim")
	var thiefs, victims basket[Report]

	requireSent(t, thief.Publish(t.Context(), []Report{{Queue: commands.QueueEvents, ID: "known", Envelope: []byte("forged")}}))
	requireSent(t, victim.Publish(t.Context(), []Report{{Queue: commands.QueueEvents, ID: "known"}, {Queue: commands.QueueEvents, ID: "not-known"}}))
	run(t, h.reports("thief", &thiefs))
	run(t, h.reports("victim", &victims))

	require.Equal(t, []string{"known", "not-known"}, reportIDs(victims.await(t, 2)))
	require.Equal(t, "thief known", thiefs.await(t, 1)[0].Conn+" "+thiefs.all()[0].ID)
}

func TestLoginsThatAreRefused(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) { h.JoinUser = anybody })
	admit(t, h, "attic")
	sign := func(key string) nats.SignatureHandler {
		return func(nonce []byte) ([]byte, error) { return ed25519.Sign(ed25519.NewKeyFromSeed(seed(key)), nonce), nil }
	}
	logins := map[string]nats.Option{
		"without any name":                   nats.Name("nobody"),
		"a key that nobody admitted":         nats.Nkey(nkeyOf(t, "stranger"), sign("stranger")),
		"an admitted key, signed by another": nats.Nkey(nkeyOf(t, "attic"), sign("stranger")),
		"a signature over another nonce":     nats.Nkey(nkeyOf(t, "attic"), func([]byte) ([]byte, error) { return sign("attic")([]byte("aaaaaaaaaaaaaaa")) }),
		"the hub's own user":                 nats.UserInfo(accountHub, ""),
		"the hub's own user and its secret":  nats.UserInfo(accountHub, h.gate.secret),
		"the system account":                 nats.UserInfo(accountSystem, h.gate.secret),
		"a peer's name as user":              nats.UserInfo("attic", "attic"),
		"a token":                            nats.Token(h.gate.secret),
		"a join user without an id":          nats.UserInfo("join_", ""),
		"a join user with a wildcard":        nats.UserInfo("join_*", ""),
		"a join user with a short id":        nats.UserInfo("join_ABC", ""),
	}
	for name, login := range logins {
		t.Run(name, func(t *testing.T) {
			_, err := nats.Connect("tls://"+h.Addr(), login, nats.Secure(clientTLS([]string{Pin(h.Certificate)})), nats.TLSHandshakeFirst(), nats.NoReconnect(), nats.Timeout(patience))

			require.ErrorIs(t, err, nats.ErrAuthorization)
		})
	}
}

// A connection that is let in cannot become somebody else by logging in again.
func TestASecondLoginOnOneConnectionEndsIt(t *testing.T) {
	t.Parallel()
	h := startHub(t, func(h *Hub) { h.JoinUser = anybody })
	admit(t, h, "attic")
	again := map[string]func(nonce string) string{
		"as a peer": func(nonce string) string {
			key := ed25519.NewKeyFromSeed(seed("attic"))
			return fmt.Sprintf(`{"nkey":%q,"sig":%q,"protocol":1,"verbose":false}`, nkeyOf(t, "attic"), base64url(ed25519.Sign(key, []byte(nonce))))
		},
		"for blobs": func(nonce string) string {
			key := ed25519.NewKeyFromSeed(seed("attic"))
			return fmt.Sprintf(`{"user":"blob_attic","nkey":%q,"sig":%q,"protocol":1,"verbose":false}`, nkeyOf(t, "attic"), base64url(ed25519.Sign(key, []byte(nonce))))
		},
		"as somebody who joins": func(string) string { return `{"user":"join_ABCDEFGHIJKLMNOPQRST","protocol":1,"verbose":false}` },
	}
	for name, connect := range again {
		t.Run(name, func(t *testing.T) {
			c := dialWire(t, h)
			c.write("CONNECT " + connect(c.nonce) + "\r\nPING\r\n")
			require.Equal(t, "PONG", c.read())

			c.write("CONNECT " + connect(c.nonce) + "\r\nPING\r\n")

			require.Contains(t, c.read(), "Authorization Violation")
			require.Equal(t, "", c.read())
		})
	}
}

func TestAViolationIsLoggedWithThePeer(t *testing.T) {
	t.Parallel()
	log, lines := newTestLog(t)
	h := startHub(t, func(h *Hub) { h.Log = log })
	admit(t, h, "thief")
	nc := rawPeer(t, h, "thief")

	for range 10 * logBurst {
		require.NoError(t, nc.Publish("mesh.cmd.victim.run.spawn", []byte("the body")))
	}
	require.NoError(t, nc.Flush())

	eventually(t, func() bool { return strings.Contains(lines.String(), "a peer tried what it may not") }, "a line in the log")
	require.Contains(t, lines.String(), "thief")
	require.Contains(t, lines.String(), "mesh.cmd.victim.run.spawn")
	require.NotContains(t, lines.String(), "the body")
	require.LessOrEqual(t, strings.Count(lines.String(), "mesh.cmd.victim"), logBurst)
}

func TestTheLogSaysHowMuchItDropped(t *testing.T) {
	t.Parallel()
	log, lines := newTestLog(t)
	l := newServerLog(log)
	now := time.Now()

	for range logBurst + 5 {
		l.allow(now)
	}
	ok, dropped := l.allow(now.Add(logWindow + time.Second))
	l.Errorf("%s", strings.Repeat("x", 10*logLine))

	require.True(t, ok)
	require.Equal(t, 5, dropped)
	require.Less(t, len(lines.String()), 2*logLine)
}
