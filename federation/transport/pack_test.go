package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

func msg(subject, id, body string) *nats.Msg { return stamped(subject, id, []byte(body)) }

// What comes over a link may be anything: encoding/json says what its bodies are.
func FuzzUnpack(f *testing.F) {
	for _, seed := range []string{``, `{}`, `[]`, `[ ]`, `[{}]`, `[{"a":"]},{[\""}, [1,[2]] ,"," , null ]`, `[{"a":"\\"},{"b":"\\\""}]`, "[\t{}\r\n,{} ] ", `[{},]`, `[{}`, `[1]2`,
		`["` + "\xff" + `"]`, `[` + strings.Repeat(`1,`, packMost-1) + `1]`, `[` + strings.Repeat(`1,`, packMost) + `1]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		want := []string{string(body)}
		var list []json.RawMessage
		if len(body) > 0 && body[0] == '[' && json.Unmarshal(body, &list) == nil && len(list) > 0 && len(list) <= packMost {
			want = nil
			for _, raw := range list {
				want = append(want, string(raw))
			}
		}
		var got []string
		for _, b := range unpack(body) {
			got = append(got, string(b))
		}
		require.Equal(t, want, got)
	})
}

func TestPacksCarryTheSameBodiesInOrder(t *testing.T) {
	big := `{"x":"` + strings.Repeat("y", packBytes/2) + `"}`
	var many []*nats.Msg
	for i := range packMost + 5 {
		many = append(many, msg("a", fmt.Sprint(i), fmt.Sprintf(`{"n":%d}`, i)))
	}
	tests := map[string]struct {
		in   []*nats.Msg
		want int
	}{
		"one travels as it is":               {[]*nats.Msg{msg("a", "1", `{"x":1}`)}, 1},
		"neighbours share a pack":            {[]*nats.Msg{msg("a", "1", `{"x": 1}`), msg("a", "2", `{ "y":2}`)}, 1},
		"another subject begins another":     {[]*nats.Msg{msg("a", "1", `{}`), msg("b", "2", `{}`), msg("a", "3", `{}`)}, 3},
		"what is no object travels alone":    {[]*nats.Msg{msg("a", "1", `{}`), msg("a", "2", `x`), msg("a", "3", `{}`)}, 3},
		"a pack is no larger than its limit": {[]*nats.Msg{msg("a", "1", big), msg("a", "2", big), msg("a", "3", `{}`)}, 2},
		"nor longer":                         {many, 2},
		"none":                               {nil, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			packed, at := pack(tt.in)

			require.Len(t, packed, tt.want)
			var got []string
			places := 0
			for n, m := range packed {
				bodies := unpack(m.Data)
				require.Len(t, bodies, len(at[n]))
				for _, b := range bodies {
					got = append(got, string(b))
				}
				for _, i := range at[n] {
					require.Equal(t, places, i)
					places++
				}
			}
			for i, m := range tt.in {
				require.Equal(t, string(m.Data), got[i])
			}
		})
	}
}

func TestAPackIsKnownByExactlyItsMessages(t *testing.T) {
	id := func(ids ...string) string {
		var list []*nats.Msg
		for _, x := range ids {
			list = append(list, msg("a", x, `{}`))
		}
		packed, _ := pack(list)
		return packed[0].Header.Get("Nats-Msg-Id")
	}
	require.Equal(t, id("1", "2", "4"), id("1", "2", "4"))
	require.NotEqual(t, id("1", "2", "4"), id("1", "3", "4"))
	require.NotEqual(t, id("12", "3"), id("1", "23"))
}

func TestWhatIsNoPackIsOneBody(t *testing.T) {
	for _, body := range []string{"", "[", "[]", "[{}", "x", "[1,2] ", "[" + strings.Repeat("{},", packMost) + "{}]"} {
		got := unpack([]byte(body))
		if body == "[1,2] " {
			require.Len(t, got, 2, "each part is judged by its reader")
			continue
		}
		require.Equal(t, [][]byte{[]byte(body)}, got, "%q", body)
	}
}

// Whoever asked for ten at a time gets ten at a time, however they travelled.
func TestAPackIsHandedOnInParts(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	admit(t, h, "attic")
	k := startLink(t, h, "attic")
	var reports []Report
	var cmds []Command
	for i, id := range ids("m", 100) {
		body := fmt.Appendf(nil, `{"n":%d}`, i)
		reports = append(reports, Report{Queue: commands.QueueEvents, ID: id, Envelope: body})
		cmds = append(cmds, Command{Conn: "attic", Queue: commands.QueueRun, Verb: "spawn", ID: id, Envelope: body})
	}
	requireSent(t, k.Publish(t.Context(), reports))
	requireSent(t, h.Publish(t.Context(), cmds))
	require.EqualValues(t, 2, waiting(t, h, groupReports.stream("attic")), "packs")
	var largest atomic.Int64
	var heard basket[Report]
	var told basket[Command]

	run(t, func(ctx context.Context) error {
		return h.Reports(ctx, "attic", most(10), func(ctx context.Context, r []Report) error {
			largest.Store(max(largest.Load(), int64(len(r))))
			return heard.add(ctx, r)
		})
	})
	run(t, func(ctx context.Context) error {
		return k.Commands(ctx, commands.QueueRun, most(10), func(ctx context.Context, c []Command) error {
			largest.Store(max(largest.Load(), int64(len(c))))
			return told.add(ctx, c)
		})
	})

	for i := range 100 {
		want := fmt.Sprintf(`{"n":%d}`, i)
		require.Equal(t, want, string(heard.await(t, 100)[i].Envelope))
		require.Equal(t, want, string(told.await(t, 100)[i].Envelope))
	}
	require.EqualValues(t, 10, largest.Load())
}
