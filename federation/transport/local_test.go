package transport

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func startLocal(t testing.TB, dir string, change func(*Local)) *Local {
	t.Helper()
	log, _ := newTestLog(t)
	n := &Local{ID: "attic", Dir: dir, Log: log}
	if change != nil {
		change(n)
	}
	t.Cleanup(n.Close)
	require.NoError(t, n.Start(t.Context()))
	return n
}

func TestALocalServerForwardsAcrossARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startLocal(t, dir, nil)
	require.NoError(t, first.Put(t.Context(), logs(ids("r", 1200)...)))
	var before basket[Report]
	stop := run(t, func(ctx context.Context) error {
		return first.Forward(ctx, most(100), func(ctx context.Context, r []Report) error {
			if len(before.all()) >= 300 {
				return errors.New("the link is down")
			}
			return before.add(ctx, r)
		})
	})
	before.await(t, 300)
	eventually(t, func() bool { return len(before.all()) >= 300 }, "some to be forwarded")
	stop()
	first.Close()

	second := startLocal(t, dir, nil)
	require.NoError(t, second.Put(t.Context(), logs("last")))
	var after basket[Report]
	run(t, func(ctx context.Context) error { return second.Forward(ctx, most(100), after.add) })

	eventually(t, func() bool {
		all := after.all()
		return len(all) > 0 && all[len(all)-1].ID == "last"
	}, "the rest")
	seen := map[string]bool{}
	for _, r := range append(before.all(), after.all()...) {
		seen[r.ID] = true
		require.Equal(t, KindLog, r.Kind)
	}
	require.Len(t, seen, 1201)
	require.Equal(t, "body of r-7", string(before.all()[7].Body))
	n := len(before.all())
	require.Equal(t, ids("r", 1200)[:n], reportIDs(before.all()))
}

func logs(ids ...string) []Report {
	all := events(ids...)
	for i := range all {
		all[i].Kind = KindLog
	}
	return all
}

// The whole way: put on the spoke's disk while the hub is away, then linked.
func TestALocalServerFeedsALink(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	n := startLocal(t, t.TempDir(), nil)
	k := newLink(t, h, "attic")
	run(t, k.Run)
	require.NoError(t, n.Put(t.Context(), logs(ids("r", 100)...)))
	run(t, func(ctx context.Context) error {
		return n.Forward(ctx, most(32), func(ctx context.Context, r []Report) error { return errors.Join(k.Publish(ctx, r)...) })
	})
	var reports basket[Report]
	run(t, h.logs("attic", &reports))

	admit(t, h, "attic")

	require.Equal(t, ids("r", 100), reportIDs(reports.await(t, 100)))
}

func TestALocalServerThatIsFullSaysSo(t *testing.T) {
	t.Parallel()
	n := startLocal(t, t.TempDir(), func(n *Local) { n.Bytes = 1 << 20 })
	report := []Report{{Kind: KindLog, ID: "r", Body: []byte(strings.Repeat("x", 400<<10))}}
	require.NoError(t, n.Put(t.Context(), report))
	require.NoError(t, n.Put(t.Context(), report))

	err := n.Put(t.Context(), report)

	require.ErrorIs(t, err, ErrQuota)
	require.NotErrorIs(t, err, ErrUnavailable)
	var taken basket[Report]
	run(t, func(ctx context.Context) error { return n.Forward(ctx, most(10), taken.add) })
	eventually(t, func() bool { return n.Put(t.Context(), report) == nil }, "room")
}

func TestALocalServerRefusesWhatCannotTravel(t *testing.T) {
	t.Parallel()
	n := startLocal(t, t.TempDir(), nil)

	require.Error(t, n.Put(t.Context(), []Report{{Kind: "other", ID: "r"}}))
	require.Error(t, n.Put(t.Context(), append(logs("r"), Report{Kind: KindLog})))
	require.NoError(t, n.Put(t.Context(), nil))
	require.Error(t, (&Local{ID: "a.b", Dir: t.TempDir()}).Start(t.Context()))
	require.ErrorIs(t, (&Local{ID: "a"}).Put(t.Context(), logs("r")), ErrUnavailable)
	_, err := n.lines.get().js.Stream(t.Context(), streamOutbox)
	require.NoError(t, err)
	s, err := n.lines.get().js.Stream(t.Context(), streamOutbox)
	require.NoError(t, err)
	require.Zero(t, s.CachedInfo().State.Msgs)
}

func TestALocalServerHasNoSocket(t *testing.T) {
	t.Parallel()
	n := startLocal(t, t.TempDir(), nil)

	require.Nil(t, n.engine.running.Addr())
	_, err := n.lines.get().nc.Request("$SYS.REQ.SERVER.PING", nil, 100*time.Millisecond)
	require.Error(t, err)
}
