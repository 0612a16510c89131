package attempt

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden file of a new version")

// A buffer is a socket whose other side has said all it will, and listens.
type buffer struct{ bytes.Buffer }

func (*buffer) Close() error                     { return nil }
func (*buffer) SetReadDeadline(time.Time) error  { return nil }
func (*buffer) SetWriteDeadline(time.Time) error { return nil }

// What is said arrives, whatever it is.
func TestMessagesArrive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, number := rapid.String(), rapid.Int64()
		texts := rapid.SliceOfN(text, 1, 5)
		var b buffer
		c := NewConn(&b)
		a := Attempt{Token: text.Draw(t, "token"), Spec: Spec{
			Marker: text.Draw(t, "marker"), Argv: texts.Draw(t, "argv"), Env: texts.Draw(t, "env"), Secrets: texts.Draw(t, "secrets"), Dir: text.Draw(t, "dir"),
			Timeout: time.Duration(number.Draw(t, "timeout")), Grace: time.Duration(number.Draw(t, "grace")), OutputCap: number.Draw(t, "cap"),
			Limits: Limits{Memory: number.Draw(t, "memory"), Pids: number.Draw(t, "pids"), CPU: time.Duration(number.Draw(t, "cpu")), CPUs: number.Draw(t, "cpus"), Files: number.Draw(t, "files"),
				Disk: number.Draw(t, "disk"), Inodes: number.Draw(t, "inodes"), FileSize: number.Draw(t, "file size"), Written: number.Draw(t, "written"), Idle: time.Duration(number.Draw(t, "idle"))},
			Counted: Counted{Dirs: texts.Draw(t, "dirs"), Shared: texts.Draw(t, "shared")}, Deadline: Instant(number.Draw(t, "deadline")),
			Slack: time.Duration(number.Draw(t, "slack")), NoCgroup: rapid.Bool().Draw(t, "cgroup"),
		}}
		q := Request{Renew: Instant(number.Draw(t, "renew"))}
		if rapid.Bool().Draw(t, "pause") {
			on := rapid.Bool().Draw(t, "on")
			q.Pause = &on
		}
		if rapid.Bool().Draw(t, "kill") {
			q.Kill = &KillOrder{Reason: text.Draw(t, "reason"), Grace: time.Duration(number.Draw(t, "kill grace"))}
		}
		r := Running{
			Pid: int(number.Draw(t, "pid")), StartedAt: time.Unix(0, number.Draw(t, "at")).UTC(), Begun: Instant(number.Draw(t, "begun")),
			Level: text.Draw(t, "level"), Unlimited: text.Draw(t, "unlimited"), Shim: int(number.Draw(t, "shim")), Cgroup: text.Draw(t, "group"),
			Pause: Pause{Since: Instant(number.Draw(t, "since")), Stood: time.Duration(number.Draw(t, "stood")), Partly: rapid.Bool().Draw(t, "partly"), Problem: text.Draw(t, "problem")},
		}
		f := StartError{Reason: Reason(text.Draw(t, "why")), Path: text.Draw(t, "path"), Text: text.Draw(t, "text")}

		require.NoError(t, c.SendAttempt(a, time.Second))
		require.NoError(t, c.SendRequest(q))
		require.NoError(t, c.SendReport(Report{Running: &r}))
		require.NoError(t, c.SendReport(Report{Failed: &f}))
		require.NoError(t, c.SendReport(Report{Exit: []byte("{}")}))

		gotA, err := c.ReceiveAttempt()
		require.NoError(t, err)
		require.Equal(t, a, gotA)
		gotQ, err := c.ReceiveRequest()
		require.NoError(t, err)
		require.Equal(t, q, gotQ)
		for _, want := range []Report{{Running: &r}, {Failed: &f}, {Exit: []byte("{}")}} {
			got, err := c.ReceiveReport()
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		_, err = c.ReceiveReport()
		require.ErrorIs(t, err, io.EOF)
	})
}

// frames are one of each kind.
func frames(t require.TestingT) [][]byte {
	var list [][]byte
	add := func(say func(c *Conn) error) {
		var b buffer
		require.NoError(t, say(NewConn(&b)))
		list = append(list, b.Bytes())
	}
	add(func(c *Conn) error {
		return c.SendAttempt(Attempt{Token: "t", Spec: Spec{Marker: "m", Argv: []string{"/bin/true", "x"}, Env: []string{"A=b"}, Secrets: []string{"s"}, Dir: "/",
			Timeout: 1, Grace: 2, OutputCap: 3, Deadline: 4, Slack: 5, NoCgroup: true,
			Limits:  Limits{Memory: 6, Pids: 7, CPU: 8, CPUs: 9, Disk: 10, Inodes: 11, FileSize: 12, Written: 13, Idle: 14, Files: 15},
			Counted: Counted{Dirs: []string{"d"}, Shared: []string{"e"}},
			Confine: Confine{User: User{ID: 16, Reaper: 17}, Landlock: true, Read: []string{"f"}, Write: []string{"g"}, AnyPort: true, Ports: []int64{18}, Wrap: []string{"h"}}}}, time.Second)
	})
	on := true
	add(func(c *Conn) error {
		return c.SendRequest(Request{Renew: 7, Kill: &KillOrder{Reason: "why", Grace: 3}, Pause: &on})
	})
	add(func(c *Conn) error {
		return c.SendReport(Report{Running: &Running{Pid: 1, StartedAt: time.Unix(0, 2), Begun: 3, Level: "tree", Unlimited: "u", Shim: 4, Cgroup: "/c",
			Pause: Pause{Since: 5, Stood: 6, Partly: true, Problem: "p"}}})
	})
	add(func(c *Conn) error { return c.SendReport(Report{Failed: &StartError{NotFound, "/x", "none"}}) })
	add(func(c *Conn) error { return c.hello(protocolVersion, "n") })
	add(func(c *Conn) error { return c.sendProof(proof{"n", "c"}) })
	return list
}

// Spoke and shim may be of different versions of this program, which the version of the protocol tells apart: what is sent
// changes with it alone. The golden file of a new version is written by -update.
func TestTheVersionNamesWhatIsSent(t *testing.T) {
	t.Parallel()
	var said []string
	for _, f := range frames(t) {
		said = append(said, hex.EncodeToString(f))
	}
	now, file := strings.Join(said, "\n")+"\n", fmt.Sprintf("testdata/frames.%d.golden", protocolVersion)
	if _, err := os.Stat(file); *update && errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, os.WriteFile(file, []byte(now), 0o600))
	}

	want, err := os.ReadFile(file)

	require.NoError(t, err)
	require.Equal(t, string(want), now, "a change of what is sent needs another protocolVersion")
}

// receivers are who may get a frame.
func receivers(c *Conn) map[string]func() error {
	return map[string]func() error{
		"attempt": func() error { _, err := c.ReceiveAttempt(); return err },
		"request": func() error { _, err := c.ReceiveRequest(); return err },
		"report":  func() error { _, err := c.ReceiveReport(); return err },
		"hello":   func() error { _, _, err := c.receiveHello(); return err },
		"proof":   func() error { _, err := c.receiveProof(); return err },
	}
}

// coded reports whether an error is one of those that bytes of any kind lead to.
func coded(err error) bool {
	return errors.Is(err, ErrGarbled) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Every message that was cut, made longer or changed in its lengths is refused by
// everybody, and a whole one by all but one.
func TestDamagedMessages(t *testing.T) {
	t.Parallel()
	for i, whole := range frames(t) {
		taken := 0
		damaged := [][]byte{append(bytes.Clone(whole), 0)}
		damaged[0][3]++ // a field too many
		for n := range len(whole) {
			damaged = append(damaged, whole[:n])
			short := bytes.Clone(whole[:n])
			if n > header {
				short[0], short[1], short[2], short[3] = 0, 0, byte((n-header)>>8), byte(n-header)
				damaged = append(damaged, short)
			}
		}
		for name := range receivers(nil) {
			var b buffer
			b.Write(whole)
			if err := receivers(NewConn(&b))[name](); err == nil {
				taken++
			} else {
				require.ErrorIs(t, err, ErrGarbled)
			}
			for _, d := range damaged {
				var b buffer
				b.Write(d)
				require.True(t, coded(receivers(NewConn(&b))[name]()), "message %d as %s: %q", i, name, d)
			}
		}
		require.Equal(t, 1, taken, "message %d", i)
	}
}

// A length is believed up to a bound, and what it announces has to come.
func TestLengths(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		said []byte
		want error
	}{
		"more than a message may have": {[]byte("\x00\x10\x00\x01q"), ErrGarbled},
		"the most there can be":        {[]byte("\xff\xff\xff\xffq"), ErrGarbled},
		"a body that does not come":    {[]byte("\x00\x10\x00\x00q"), io.ErrUnexpectedEOF},
		"half a header":                {[]byte("\x00\x10"), io.ErrUnexpectedEOF},
		"nothing":                      {nil, io.EOF},
		"an empty body":                {[]byte("\x00\x00\x00\x00q"), ErrGarbled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b buffer
			b.Write(tt.said)

			_, err := NewConn(&b).ReceiveRequest()

			require.ErrorIs(t, err, tt.want)
		})
	}
	// A list without end makes no room for itself.
	r := reader{rest: append([]byte{0x7f, 0xff, 0xff, 0xff}, make([]byte, 100)...)}
	require.Empty(t, r.texts())
	require.ErrorIs(t, r.end(), ErrGarbled)
}

func FuzzReceive(f *testing.F) {
	for _, whole := range frames(f) {
		f.Add(whole)
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		for name := range receivers(nil) {
			var b buffer
			b.Write(said)
			if err := receivers(NewConn(&b))[name](); err != nil {
				require.True(t, coded(err), "%s: %v", name, err)
			}
		}
	})
}

// Both sides are who knows the secret, and a wrong one is told from a right one by
// whoever looks.
func TestHandshake(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoke, shim string
		proven      bool
	}{
		"one secret":         {"token marker", "token marker", true},
		"two":                {"token marker", "token other", false},
		"one that is longer": {strings.Repeat("x", 200), strings.Repeat("x", 201), false},
		"none on one side":   {"", "token", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := socketPair(t)
			said := make(chan error, 1)
			go func() {
				err := NewConn(theirs).Verify(tt.shim)
				said <- errors.Join(err, theirs.Close())
			}()

			err := NewConn(ours).Prove(tt.spoke)

			_ = ours.Close()
			if tt.proven {
				require.NoError(t, err)
				require.NoError(t, <-said)
				return
			}
			require.ErrorIs(t, err, ErrNotProven)
			require.Error(t, <-said)
		})
	}
}

// What an exit is recorded as is what encoding/json makes of it.
func TestRecord(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := drawExit(t)

		require.Equal(t, unmarshalled(t, marshalled(t, e)), unmarshalled(t, e.Record()))
	})
	require.Equal(t, unmarshalled(t, marshalled(t, Exit{})), unmarshalled(t, Exit{}.Record()))
	odd := Exit{Reason: "\x00\x1f\"\\\x7f\xff\xc0é\u2028😀", Code: math.MinInt}
	require.Equal(t, unmarshalled(t, marshalled(t, odd)), unmarshalled(t, odd.Record()))
}

func TestFilesOfADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := Exit{Outcome: Exited, EndedAt: time.Now().UTC()}
	require.NoError(t, ReserveRecord(dir))

	require.NoError(t, WriteRecord(dir, e))

	b, err := ReadPlain(dir+"/"+ExitFile, MaxRecord)
	require.NoError(t, err)
	require.Equal(t, e.Record(), b, "nothing of what was reserved")
	_, err = ReadPlain(dir+"/"+ExitFile, 3)
	require.ErrorIs(t, err, ErrSpoilt)
	none, err := ReadPlain(dir+"/none", 3)
	require.NoError(t, err)
	require.Nil(t, none)
	for path, want := range map[string]string{"/a/b": "/a", "/a": "/", "a/b": "a", "a": ".", "./a": "."} {
		require.Equal(t, want, dirOf(path), path)
	}
	first, err := TakeLock(dir)
	require.NoError(t, err)
	require.NotNil(t, first)
	second, err := TakeLock(dir)
	require.NoError(t, err)
	require.Nil(t, second)
	require.NoError(t, Release(first))
	require.NoError(t, os.Remove(dir+"/"+LockFile))
	require.NoError(t, os.Symlink("elsewhere", dir+"/"+LockFile))
	_, err = TakeLock(dir)
	require.ErrorIs(t, err, ErrSpoilt)
}
