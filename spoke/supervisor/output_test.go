package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOutput(t *testing.T) {
	t.Parallel()
	zeros := func(n int) string { return strings.Repeat("0", n) }
	dropped := func(bytes, from, to int64) Output {
		gap := Gap{From: from, To: to, At: from}
		size := bytes - (to - from) + int64(len(gap.Note()))
		return Output{Bytes: bytes, Dropped: to - from, Gaps: []Gap{gap}, Size: size}
	}
	numbers := func(from, to string) string { return "seq -w " + from + " " + to } // 6 bytes each with 5 digits
	tests := map[string]struct {
		script       string
		limit        int64
		want         Output
		starts, ends string
	}{
		"nothing":                    {"exit 0", 100, Output{}, "", ""},
		"less than the head":         {"echo hi", 100, Output{Bytes: 3, Size: 3}, "hi\n", "hi\n"},
		"exactly the head":           {"printf %050d 7", 100, Output{Bytes: 50, Size: 50}, "00", "7"},
		"more than the head":         {"printf %080d 7", 100, Output{Bytes: 80, Size: 80}, "00", "7"},
		"exactly the cap":            {"printf %0100d 7", 100, Output{Bytes: 100, Size: 100}, "00", "7"},
		"one more than the cap":      {"printf 1%0100d 7", 100, dropped(101, 50, 51), "100", "\n[1 bytes dropped: 50 to 50 of what was written]\n" + zeros(49) + "7"},
		"far more than the cap":      {numbers("10000", "90000"), 6000, dropped(480006, 3000, 477006), "10000\n10001\n", "\n89999\n90000\n"},
		"an odd cap":                 {"printf %0100d 7", 7, dropped(100, 4, 97), "0000\n[", "dropped: 4 to 96 of what was written]\n007"},
		"a cap of one":               {"printf 12345", 1, dropped(5, 1, 5), "1\n[4", "dropped: 1 to 4 of what was written]\n"},
		"10 MiB without any newline": {"head -c 10485760 /dev/zero", 0, Output{Bytes: 10 << 20, Size: 10 << 20}, "\x00", "\x00"},
		"10 MiB with a small cap":    {"head -c 10485760 /dev/zero", 1 << 10, dropped(10<<20, 512, 10<<20-512), "\x00", "\x00"},
		"bytes that are no text":     {`printf '\377\376%080d\300' 7`, 40, dropped(83, 20, 63), "\xff\xfe00", "07\xc0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := sh(tt.script)
			spec.OutputCap = tt.limit
			a, dir := start(t, spec)

			got := ended(t, a)

			kept := read(t, dir, "stdout")
			sum := sha256.Sum256([]byte(kept))
			tt.want.SHA256 = hex.EncodeToString(sum[:])
			require.Equal(t, tt.want, got.Stdout)
			require.Len(t, kept, int(got.Stdout.Size))
			require.True(t, strings.HasPrefix(kept, tt.starts), "it starts with %.40q", kept)
			require.True(t, strings.HasSuffix(kept, tt.ends), "it ends with %.40q", kept[max(0, len(kept)-40):])
			require.Equal(t, Exited, got.Outcome)
		})
	}
}

func TestOutputCanBeFollowed(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	spec := sh("echo one; while ! [ -e " + gate + " ]; do sleep 0.02; done; echo two; printf %0300d 3")
	spec.OutputCap = 100
	a, dir := start(t, spec)
	name := filepath.Join(dir, "stdout")
	eventually(t, "the first line while the agent runs", func() bool {
		b, _ := os.ReadFile(name)
		return string(b) == "one\n"
	})
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	first := make([]byte, 4)
	_, err = f.Read(first)
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	ended(t, a)

	rest := make([]byte, 4096)
	n, err := f.Read(rest)
	require.NoError(t, err)
	require.Equal(t, read(t, name), string(first)+string(rest[:n]), "what a follower saw is what there is")
	require.Contains(t, string(rest[:n]), "two\n")
	require.Contains(t, string(rest[:n]), "[208 bytes dropped: 50 to 257 of what was written]")
}

func TestOutputClosedEarly(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	a, dir := start(t, sh("echo before; exec >&- 2>&-; while ! [ -e "+gate+" ]; do sleep 0.02; done; exit 5"))
	eventually(t, "the output before", func() bool { b, _ := os.ReadFile(filepath.Join(dir, "stdout")); return len(b) > 0 })
	select {
	case <-a.Done():
		require.FailNow(t, "the agent still runs")
	case <-time.After(300 * time.Millisecond):
	}

	require.NoError(t, os.WriteFile(gate, nil, 0o600))

	got := ended(t, a)
	require.Equal(t, Exited, got.Outcome)
	require.Equal(t, 5, got.Code)
}

// A stranger that got hold of the agent's stdout cannot delay the end.
func TestOutputHeldByAStranger(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("echo up; exec sleep 600"))
	eventually(t, "the agent is up", func() bool { return read(t, dir, "stdout") == "up\n" })
	stranger, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", a.Pid()), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer stranger.Close()
	begin := time.Now()

	require.NoError(t, a.Kill(t.Context(), "enough", 0))

	require.Less(t, time.Since(begin), 5*time.Second)
	require.Equal(t, "up\n", read(t, dir, "stdout"))
}

// What a spec says is secret is in no file of the attempt. What is held back when the stream
// ends, as it could have been one, is kept.
func TestSecretsOfASpec(t *testing.T) {
	t.Parallel()
	spec := sh(`printf 'one canary-'; sleep 0.1; printf '4711-x two'; printf 'err canary-%s-x' 4711 >&2; printf ' canary-47'`)
	spec.Secrets = []string{"canary-4711-x"}

	a, dir := start(t, spec)
	<-a.Done()

	require.Equal(t, "one [redacted] two canary-47", read(t, dir, "stdout"))
	require.Equal(t, "err [redacted]", read(t, dir, "stderr"))
	require.Equal(t, int64(len("one [redacted] two canary-47")), a.Exit().Stdout.Bytes)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Type().IsRegular() {
			require.NotContains(t, read(t, dir, e.Name()), "canary-4711-x", e.Name())
		}
	}
}
