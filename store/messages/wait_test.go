package messages_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/messages"
)

// A batch of messages has only those look whom it is for.
func TestOnlyThoseWhomItIsForLook(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	looks := map[string]*atomic.Int64{"main/bob": {}, "main/eve": {}, "other/bob": {}}
	for name, n := range looks {
		workspace, reader, _ := strings.Cut(name, "/")
		go l.Await(t.Context(), workspace, reader, time.Now().Add(time.Minute), func(context.Context) (bool, time.Duration, error) {
			n.Add(1)
			return false, 0, nil
		})
	}
	require.Eventually(t, func() bool { return s.Count(t, `SELECT count(*) FROM message_listeners`) == 1 }, time.Minute, 10*time.Millisecond)
	looked := func(act func()) map[string]bool {
		time.Sleep(200 * time.Millisecond)
		before, who := map[string]int64{}, map[string]bool{}
		for name, n := range looks {
			before[name] = n.Load()
		}
		act()
		time.Sleep(300 * time.Millisecond)
		for name, n := range looks {
			who[name] = n.Load() > before[name]
		}
		return who
	}

	require.Equal(t, map[string]bool{"main/bob": true, "main/eve": false, "other/bob": false}, looked(func() { publish(t, l, saying("alice", "bob", "1")) }))
	require.Equal(t, map[string]bool{"main/bob": true, "main/eve": true, "other/bob": false}, looked(func() { publish(t, l, saying("alice", "", "1")) }))
	require.Equal(t, map[string]bool{"main/bob": true, "main/eve": true, "other/bob": true}, looked(func() { require.NoError(t, s.Exec(`NOTIFY spawnmesh_messages`)) }), "these are too many to name")
}

func TestANotificationHasABound(t *testing.T) {
	t.Parallel()
	require.Equal(t, "main\tbob\n", messages.Written("main", "bob"))
	var readers []string
	for i := range 256 {
		readers = append(readers, fmt.Sprintf("%0100d", i))
	}
	require.Empty(t, messages.Written("main", readers...))
	require.LessOrEqual(t, len(messages.Written("main", readers[:70]...)), 7999)
	require.NotEmpty(t, messages.Written("main", readers[:70]...))
}

// Who waits for long keeps one session, and opens none more.
func TestWhoWaitsKeepsItsSession(t *testing.T) {
	t.Parallel()
	s := storetest.NewSide(t, 1, 2)
	l := messages.Open(s.DB)
	conn, err := pgx.Connect(t.Context(), pgtest.Admin(s.URL))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	sessions := func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT sessions FROM pg_stat_database WHERE datname = current_database()`).Scan(&n))
		return n
	}
	go l.Poll(t.Context(), "main", "bob", 1, time.Now().Add(time.Minute))
	require.Eventually(t, func() bool { return s.Count(t, `SELECT count(*) FROM message_listeners`) == 1 }, time.Minute, 10*time.Millisecond)
	time.Sleep(2 * time.Second)
	before := sessions()

	time.Sleep(11 * time.Second)

	require.Equal(t, before, sessions())
}
