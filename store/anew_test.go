package store_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// sealedAnew is a pair whose hub seals an order anew that the spoke has taken and accepted
// meanwhile: what is on its way when histories are compared is in none of them.
func sealedAnew(t *testing.T) (p *storetest.Pair, task string, answer []byte) {
	t.Helper()
	p, task, answer = accepted(t)
	theirs := commands.Numbering{Stored: commands.Numbers{Through: 5}, Held: []commands.Held{{Seq: 1, SHA256: strings.Repeat("ab", 32)}}}
	a, err := p.Hub.DB.Compare(t.Context(), p.Hub.Peer, theirs, 0, 20)
	require.NoError(t, err)
	require.Equal(t, 1, a.Renumbered)
	return p, task, answer
}

// accepted is a pair whose spoke has taken an order in, and its answer.
func accepted(t *testing.T) (p *storetest.Pair, task string, answer []byte) {
	t.Helper()
	p = storetest.NewPair(t)
	task = p.Order(t, nil)
	order := p.Spoke.Read(t, p.Hub.Due(t)...)
	_, err := p.Spoke.DB.TakeIn(t.Context(), p.Spoke.Conn.ID, 20, order, func(_ context.Context, tx *store.Tx, _ store.Standing, fresh []*store.Incoming) error {
		fresh[0].Answer(tx, &commands.Accepted{Task: task, State: commands.Queued})
		return nil
	})
	require.NoError(t, err)
	return p, task, p.Spoke.Due(t)[0]
}

func TestAnAnswerToAnEarlierSealOfAnOrderCounts(t *testing.T) {
	t.Parallel()
	p, task, accepted := sealedAnew(t)

	answer := p.Hub.Read(t, accepted)
	_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 20, answer, store.MoveMirrors(storetest.Nowhere))

	require.NoError(t, err)
	require.Empty(t, answer[0].Code, answer[0].Why)
	require.NotNil(t, p.Mirror(t, task).AcceptedAt)
}

// Who has a message takes the new seal for the old one: its number is stored, and both
// histories are the same.
func TestAMessageThatIsSealedAnewIsTheSame(t *testing.T) {
	t.Parallel()
	p, _, _ := sealedAnew(t)
	again := p.Spoke.Read(t, reopened(t, p.Hub)...)

	take(t, p.Spoke, again)

	require.Equal(t, signing.ReplaySame, again[0].Code)
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM inbox WHERE seq = $1 AND digest = $2`, again[0].Header.Seq, again[0].Digest[:]))
	theirs, err := p.Spoke.DB.Numbering(t.Context(), p.Spoke.Conn.ID, false, nil)
	require.NoError(t, err)
	require.Equal(t, again[0].Header.Seq, theirs.Stored.Through)
	require.NoError(t, p.Hub.DB.Confirm(t.Context(), p.Hub.Peer, theirs.Stored))
	require.Zero(t, p.Hub.Count(t, `SELECT count(*) FROM open_outbox`), "it is not sent for ever")
}

// What was signed with another content under the same id is none of it, and a number that
// another message has stays with that.
func TestWhatIsNotTheSameMessageSealedAnew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*signing.Header)
		code   signing.Code
	}{
		"until another moment": {func(h *signing.Header) { h.Exp++ }, signing.ReplayDiff},
		"earlier, and longer":  {func(h *signing.Header) { h.Iat, h.Exp = h.Iat-1, h.Exp+1 }, signing.ReplayDiff},
		"about something else": {func(h *signing.Header) { h.Kind = string(commands.KillKind) }, signing.ReplayDiff},
		"under a used number":  {func(h *signing.Header) { h.Seq = 2 }, signing.SeqReuse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := storetest.NewPair(t)
			p.Order(t, nil)
			p.Order(t, nil)
			first := p.Spoke.Read(t, p.Hub.Due(t)...)
			take(t, p.Spoke, first)
			h := first[0].Header
			h.Seq += 10
			c.change(&h)
			raw, err := commands.EncodeBody(first[0].Body)
			require.NoError(t, err)
			anew, err := p.Hub.Signing.Seal(signing.Command, h, raw)
			require.NoError(t, err)
			o, err := p.Spoke.Verifier.Open(anew.Envelope, time.Now())
			require.NoError(t, err)
			m := &store.Incoming{Conn: p.Spoke.Conn.ID, Header: o.Header(), Digest: o.Digest(), Envelope: anew.Envelope}

			take(t, p.Spoke, []*store.Incoming{m})

			require.Equal(t, c.code, m.Code)
			require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM inbox WHERE seq = 1 AND digest = $1`, first[0].Digest[:]))
		})
	}
}

// An earlier seal may arrive after a later one: that stays, and both histories are the same.
func TestAnEarlierSealThatComesLaterChangesNothing(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	first := p.Hub.Due(t)[0]
	take(t, p.Spoke, p.Spoke.Read(t, first))
	sealed, err := p.Hub.Signing.Renumber(first, 7)
	require.NoError(t, err)
	anew := p.Spoke.Read(t, sealed.Envelope)
	take(t, p.Spoke, anew)

	late := p.Spoke.Read(t, first)
	take(t, p.Spoke, late)

	require.Equal(t, signing.ReplaySame, late[0].Code)
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM inbox WHERE seq = $1 AND digest = $2`, anew[0].Header.Seq, anew[0].Digest[:]))
}

// A header may be authentic and the body below it not: that is no seal of the message,
// whose evidence stays.
func TestASealWithAnotherBodyIsNoneOfTheMessage(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t)
	p.Order(t, nil)
	first := p.Hub.Due(t)[0]
	take(t, p.Spoke, p.Spoke.Read(t, first))
	anew, err := p.Hub.Signing.Renumber(first, 2)
	require.NoError(t, err)
	var e map[string]any
	require.NoError(t, json.Unmarshal(anew.Envelope, &e))
	e["body"] = base64.StdEncoding.EncodeToString([]byte("{}"))
	forged, err := json.Marshal(e)
	require.NoError(t, err)
	o, err := p.Spoke.Verifier.Open(anew.Envelope, time.Now())
	require.NoError(t, err)
	m := &store.Incoming{Conn: p.Spoke.Conn.ID, Header: o.Header(), Digest: o.Digest(), Envelope: forged, Refusal: commands.Refuse(signing.BodyDigest, "not its body")}

	take(t, p.Spoke, []*store.Incoming{m})

	require.Equal(t, signing.ReplayDiff, m.Code)
	require.Equal(t, 1, p.Spoke.Count(t, `SELECT count(*) FROM inbox WHERE envelope = $1`, first))
}

// What was refused among too many has left no bytes. Sealed anew it is refused as before,
// and is no fault of its sender.
func TestWhatLeftNoBytesIsSealedAnew(t *testing.T) {
	t.Parallel()
	p, task, _ := sealedAnew(t)
	re := &signing.Ref{ID: storetest.NewID(), SHA256: strings.Repeat("ab", 32)} // an order that the hub does not know
	require.NoError(t, p.Spoke.DB.Tx(t.Context(), "answering", func(_ context.Context, tx *store.Tx) error {
		tx.Send(store.Draft{Conn: p.Spoke.Conn.ID, Body: &commands.Accepted{Task: task, State: commands.Queued}, Re: re})
		return nil
	}))
	due := p.Spoke.Due(t)
	take := func(envelope []byte) *store.Incoming {
		m := p.Hub.Read(t, envelope)
		_, err := p.Hub.DB.TakeIn(t.Context(), p.Hub.Conn.ID, 0, m, store.MoveMirrors(storetest.Nowhere))
		require.NoError(t, err)
		return m[0]
	}
	require.Equal(t, commands.ReUnknown, take(due[len(due)-1]).Code)
	anew, err := p.Spoke.Signing.Renumber(due[len(due)-1], 77)
	require.NoError(t, err)

	again := take(anew.Envelope)

	require.Equal(t, signing.ReplaySame, again.Code, again.Why)
	require.Equal(t, 1, p.Hub.Count(t, `SELECT count(*) FROM inbox WHERE seq = 77 AND code = 'RE_UNKNOWN' AND envelope = ''`))
}

// reopened returns what is open in the outbox, also where it was handed out before.
func reopened(t *testing.T, s *storetest.Side) [][]byte {
	t.Helper()
	s.Out.Rewind()
	return s.Due(t)
}
