package main

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What lasts is told of when it has lasted, again after a while, and never after its end.
func TestWhatLastsIsTold(t *testing.T) {
	t.Parallel()
	told, over := make(chan string, 100), atomic.Int32{}
	l := newLasting("making the database", pace{time.Millisecond, 2 * time.Millisecond}, func(text string) { told <- text }, func() { over.Add(1) })
	require.Equal(t, "making the database, 0s so far", <-told)
	l.now("opening it")
	require.Eventually(t, func() bool { return <-told == "opening it, 0s so far" }, time.Minute, time.Millisecond)
	l.is(func() string { return "" })
	l.now("closing it")
	l.done()
	l.done()
	require.EqualValues(t, 1, over.Load(), "the line is ended once")
	for len(told) > 0 {
		<-told
	}
	time.Sleep(10 * time.Millisecond) // that nothing comes is the point
	require.Empty(t, told)

	quick := newLasting("opening it", pace{time.Minute, time.Minute}, func(text string) { told <- text }, func() {})
	quick.done()
	require.Empty(t, told)
	none := (&app{output: "json"}).lasting("opening it")
	none.now("closing it")
	none.done()
}

// Who joins a hub that takes its time is told what is waited for: in one line, or on a terminal in
// one that goes again, and a program is not.
func TestAJoinThatLastsIsTold(t *testing.T) {
	t.Parallel()
	h := newSilentHub(t)
	slow := func(join func() said) said {
		go func() {
			conn, err := h.listener.Accept()
			time.Sleep(1500 * time.Millisecond) // it lasts
			if err == nil {
				conn.Close()
			}
		}()
		return join()
	}
	dir := fresh(t).dir
	waits := "joining the hub at " + h.listener.Addr().String() + ": waiting for its answer, 1s so far"

	s := slow(func() said { return joinsAt(t, strings.NewReader(h.token), dir, "--yes") })
	asJSON := slow(func() said { return joinsAt(t, strings.NewReader(h.token), dir, "--yes", "-o", "json") })

	require.Equal(t, exitUnreachable, s.code, s.err)
	require.Equal(t, 1, strings.Count(s.err, waits+"\n"), s.err)
	require.Equal(t, exitUnreachable, asJSON.code)
	require.Regexp(t, `^\{"error":.*\}\n$`, asJSON.err)
	keyboard, screen := aTerminal(t, 120)
	var shown strings.Builder
	slow(func() said {
		a := &app{in: strings.NewReader(h.token), out: &bytes.Buffer{}, err: screen, getenv: func(string) string { return "" }}
		return said{code: run(t.Context(), a, []string{"--data-dir", dir, "spoke", "join", "--yes"})}
	})
	readUntil(t, keyboard, &shown, clearLine)
	require.Contains(t, shown.String(), waits+clearLine)
}
