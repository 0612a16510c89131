package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/output"
)

// Of what is there the last lines are shown, whatever pieces they came in; what comes then is shown as it comes.
func TestTheLastLinesOfALog(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	v := logView{a: &app{out: &out, err: &errOut}, last: 3}
	for _, p := range []struct {
		stream, text string
	}{{"stdout", "one\ntwo\nth"}, {"stderr", "odd"}, {"stdout", "ree\nfour\nfi"}, {"stderr", " one\n"}, {"stdout", "ve"}} {
		require.NoError(t, v.output(1, p.stream, []byte(p.text)))
	}
	require.Empty(t, out.String())

	require.NoError(t, v.flush())
	require.NoError(t, v.output(1, "stdout", []byte(" and more\n")))
	require.NoError(t, v.output(2, "stdout", []byte("again\n")))

	require.Equal(t, "four\nfive and more\nagain\n", out.String())
	require.Equal(t, "odd one\n[attempt 2]\n", errOut.String())
}

func TestWhatOfALogIsHidden(t *testing.T) {
	t.Parallel()
	now := time.Now()
	line := func(attempt int, at time.Time) hub.LogLine {
		return hub.LogLine{Piece: output.Piece{Attempt: attempt, At: at, Data: []byte("x")}}
	}
	f := logFlags{attempt: 2, since: moment{at: now}}
	require.True(t, f.hides(line(1, now)))
	require.True(t, f.hides(line(2, now.Add(-time.Second))))
	require.False(t, f.hides(line(2, now)))
	require.False(t, f.hides(hub.LogLine{Waiting: &hub.Unlinked{}}))
	require.True(t, f.hides(hub.LogLine{Missing: &hub.Missing{Attempt: 1}}))
	require.False(t, (&logFlags{}).hides(line(1, now)))
}
