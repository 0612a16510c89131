package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/pgtest"
	"github.com/spawnmesh/spawnmesh/store"
)

// An Act is one call of a method that writes. What it returns is compared.
type Act func(ctx context.Context, over *Side) (any, error)

// LoseAnswers runs an act as often as it commits, each time on an instance of
// its own and with the answer to another of its commits lost. Each time it
// answers as it does on a good line, and leaves the database as it does then.
// ready prepares the instance that the others are copies of and returns the act,
// which uses nothing but the copy that it is given.
func LoseAnswers(t *testing.T, ready func(t testing.TB, s *Side) Act) {
	t.Helper()
	s := NewSide(t, 1, 2)
	act := ready(t, s)
	s.DB.Close() // nobody is connected to a database that is copied
	kept := everything(t, s.URL)
	var want string
	var state []string
	var commits int
	t.Run("a good line", func(t *testing.T) { // by itself, so that its connections are gone before the others begin
		want, state, commits = s.actOver(t, 0, act, kept)
		require.Positive(t, commits, "an act that writes commits")
	})
	for n := 1; n <= commits; n++ {
		t.Run(fmt.Sprintf("commit %d of %d", n, commits), func(t *testing.T) {
			t.Parallel()

			got, left, passed := s.actOver(t, n, act, kept)

			require.GreaterOrEqual(t, passed, commits)
			require.Equal(t, want, got, "what it answers")
			require.ElementsMatch(t, state, left, "what it leaves")
		})
	}
}

// actOver runs an act on a copy of the instance, over a line that loses the
// answer to its nth commit.
func (s *Side) actOver(t testing.TB, n int, act Act, kept string) (answer string, state []string, commits int) {
	t.Helper()
	copied := pgtest.Copy(t, s.URL)
	proxy := NewProxy(t, copied)
	over := OpenSide(t, proxy.URL, 1, 2, 4)
	over.Conn, over.Verifier, over.Peer = s.Conn, s.Verifier, s.Peer
	before := proxy.Commits()
	if n > 0 {
		proxy.Lose(before + n)
	}

	got, err := act(t.Context(), over)

	require.NoError(t, err)
	raw, err := json.Marshal(got)
	require.NoError(t, err)
	return alike([]string{string(raw)})[0], content(t, copied, kept), proxy.Commits() - before
}

// Methods returns the names of the exported methods of values, as Type.Method.
func Methods(values ...any) (list []string) {
	for _, v := range values {
		typ := reflect.TypeOf(v)
		for i := range typ.NumMethod() {
			list = append(list, typ.Elem().Name()+"."+typ.Method(i).Name)
		}
	}
	return list
}

// Meet joins the instance with a peer that is nowhere else.
func (s *Side) Meet(t testing.TB, authority store.Authority) {
	t.Helper()
	s.join(t, NewID(), &Side{Identity: Signer(t, 7), Signing: Signer(t, 8), Sealing: Decrypter(t, 8)}, "peer", authority)
}

// MeetAnother joins the instance with one more such peer.
func (s *Side) MeetAnother(t testing.TB, authority store.Authority) {
	t.Helper()
	s.join(t, NewID(), &Side{Identity: Signer(t, 9), Signing: Signer(t, 10), Sealing: Decrypter(t, 10)}, "another", authority)
}
