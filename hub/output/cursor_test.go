package output_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/output"
)

// What a reader has had is taken off from what the hub says to be gone, and nothing else is.
func TestWhatAReaderHasHadIsTakenOff(t *testing.T) {
	t.Parallel()
	data := func(attempt int, stream string, offset int64, size int) output.Piece {
		return output.Piece{Attempt: attempt, Stream: stream, Offset: offset, Data: make([]byte, size)}
	}
	mark := func(stream string, d output.Dropped) output.Piece {
		p := output.Piece{Attempt: 1, Stream: stream, Dropped: &d}
		if d.By == "hub" {
			p.Offset = d.From
		}
		return p
	}
	hub := func(stream string, from, bytes int64) output.Piece {
		return mark(stream, output.Dropped{By: "hub", From: from, Bytes: bytes})
	}
	spoke := mark("stdout", output.Dropped{By: "spoke", From: 2, Bytes: 7})
	other := mark("stdout", output.Dropped{By: "spoke", From: 11, Bytes: 1})
	damaged := output.Piece{Dropped: &output.Dropped{By: "hub", Cut: true}}
	for name, tt := range map[string]struct {
		had         []output.Piece
		comes, want output.Piece
		none        bool // nothing is left of it
	}{
		"nothing was had":              {nil, hub("stdout", 0, 100), hub("stdout", 0, 100), false},
		"a part was had":               {[]output.Piece{data(1, "stdout", 0, 30), data(1, "stdout", 30, 10)}, hub("stdout", 0, 100), hub("stdout", 40, 60), false},
		"all but a byte was had":       {[]output.Piece{data(1, "stdout", 0, 99)}, hub("stdout", 0, 100), hub("stdout", 99, 1), false},
		"all was had":                  {[]output.Piece{data(1, "stdout", 0, 100)}, hub("stdout", 0, 100), output.Piece{}, true},
		"more was had":                 {[]output.Piece{data(1, "stdout", 0, 200)}, hub("stdout", 0, 100), output.Piece{}, true},
		"the same mark was had":        {[]output.Piece{hub("stdout", 0, 100)}, hub("stdout", 0, 100), output.Piece{}, true},
		"a mark of less was had":       {[]output.Piece{hub("stdout", 0, 60)}, hub("stdout", 0, 100), hub("stdout", 60, 40), false},
		"it is behind what was had":    {[]output.Piece{data(1, "stdout", 0, 20)}, hub("stdout", 50, 50), hub("stdout", 50, 50), false},
		"another stream was had":       {[]output.Piece{data(1, "stderr", 0, 100)}, hub("stdout", 0, 100), hub("stdout", 0, 100), false},
		"another attempt was had":      {[]output.Piece{data(2, "stdout", 0, 100)}, hub("stdout", 0, 100), hub("stdout", 0, 100), false},
		"a mark of the spoke":          {[]output.Piece{data(1, "stdout", 0, 100)}, spoke, spoke, false},
		"the spoke's mark comes again": {[]output.Piece{spoke, other}, spoke, output.Piece{}, true},
		"another one of the spoke":     {[]output.Piece{spoke}, other, other, false},
		"a damaged file":               {[]output.Piece{data(1, "stdout", 0, 100), damaged}, damaged, damaged, false},
		"output":                       {[]output.Piece{hub("stdout", 0, 100)}, data(1, "stdout", 100, 5), data(1, "stdout", 100, 5), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h output.Had
			for _, p := range tt.had {
				_, some := h.Take(p)
				require.True(t, some)
			}

			got, some := h.Take(tt.comes)

			require.Equal(t, tt.none, !some)
			if some {
				require.Equal(t, tt.want, got)
			}
		})
	}
}

// Who goes on from any piece gets what is behind it: of marks that came together, those that he
// has not had, too.
func TestAReaderGoesOnFromAnyPiece(t *testing.T) {
	t.Parallel()
	p := newPlace(t, output.Bounds{Agent: 150_000})
	task := p.ordered()
	p.append(task, "stderr", 0, "early")
	p.fill(task, 0, 300_000)
	for _, stream := range commands.Streams {
		log, err := p.hub.DB.Log(t.Context(), task)
		require.NoError(t, err)
		_, err = p.Append(t.Context(), p.hub.Conn.ID, []*commands.Log{{Task: task, Attempt: 1, Stream: stream, Offset: log.Stream(1, stream).Through,
			End: &commands.LogEnd{Gaps: []commands.Gap{{From: 2, To: 9, At: 2}, {From: 11, To: 12, At: 4}}, Cut: true}}})
		require.NoError(t, err)
	}
	all := p.pieces(task, 0, &output.Had{}, 1000)
	require.Len(t, all, 2+1+3+3, "two marks of the hub, the last of the output, and three of the spoke for each stream")

	for n := range all {
		var had output.Had
		first := p.pieces(task, 0, &had, n)
		after := int64(0)
		if n > 0 {
			after = first[n-1].Seq
		}

		require.Equal(t, all, append(first, p.pieces(task, after, &had, 1000)...), "after %d", n)
	}
}

// append appends a piece of the first attempt.
func (p place) append(task, stream string, offset int64, text string) {
	p.Helper()
	_, err := p.Append(p.Context(), p.hub.Conn.ID, []*commands.Log{{Task: task, Attempt: 1, Stream: stream, Offset: offset, Data: []byte(text)}})
	require.NoError(p, err)
}

// pieces returns up to most pieces of a log behind after, for a client who has had some.
func (p place) pieces(task string, after int64, had *output.Had, most int) (list []output.Piece) {
	p.Helper()
	p.readOn(task, &output.Cursor{After: after}, func(l output.Piece) error {
		if len(list) == most {
			return nil
		}
		if l, some := had.Take(l); some {
			list = append(list, l)
		}
		return nil
	})
	return list
}
