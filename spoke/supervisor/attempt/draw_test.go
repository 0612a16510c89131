package attempt

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawExit(t *rapid.T) Exit {
	text := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
	moment := rapid.OneOf(rapid.Just(time.Time{}), rapid.Map(rapid.Int64(), func(n int64) time.Time { return time.Unix(0, n).UTC() }))
	output := func(name string) Output {
		return Output{
			Bytes: number.Draw(t, name), Dropped: number.Draw(t, name), Cut: rapid.Bool().Draw(t, name), Size: number.Draw(t, name), SHA256: text.Draw(t, name),
			Gaps: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Gap {
				return Gap{number.Draw(t, "from"), number.Draw(t, "to"), number.Draw(t, "at")}
			}), 0, 3).Draw(t, name),
		}
	}
	return Exit{
		Outcome: Outcome(text.Draw(t, "outcome")), Reason: text.Draw(t, "reason"), Failed: Reason(text.Draw(t, "failed")), Code: int(number.Draw(t, "code")), Signal: text.Draw(t, "signal"),
		StartedAt: moment.Draw(t, "start"), EndedAt: moment.Draw(t, "end"), Level: text.Draw(t, "level"), Breach: Breach{LimitName(text.Draw(t, "limit")), Unit(text.Draw(t, "unit")), number.Draw(t, "allowed"), number.Draw(t, "measured")}, Unlimited: text.Draw(t, "unlimited"),
		OOMKills: number.Draw(t, "oom"), Refused: number.Draw(t, "refused"), ReapedTotal: int(number.Draw(t, "total")),
		Reaped: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Process {
			return Process{int(number.Draw(t, "pid")), text.Draw(t, "command")}
		}), 0, 3).Draw(t, "reaped"),
		Survivors: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Survivor {
			return Survivor{int(number.Draw(t, "pid")), text.Draw(t, "command"), text.Draw(t, "state"), text.Draw(t, "wchan")}
		}), 0, 3).Draw(t, "survivors"),
		Stdout: output("stdout"), Stderr: output("stderr"), MaxRSS: number.Draw(t, "rss"), CPU: time.Duration(number.Draw(t, "cpu")),
	}
}

func marshalled(t require.TestingT, e Exit) []byte {
	b, err := json.Marshal(e)
	require.NoError(t, err)
	return b
}

// unmarshalled is all that a record says, known to Exit or not.
func unmarshalled(t require.TestingT, record []byte) map[string]any {
	require.True(t, json.Valid(record), "%s", record)
	said := map[string]any{}
	exactly := json.NewDecoder(bytes.NewReader(record))
	exactly.UseNumber()
	require.NoError(t, exactly.Decode(&said))
	return said
}

func socketPair(t require.TestingT) (ours, theirs net.Conn) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	conn := func(fd int) net.Conn {
		f := os.NewFile(uintptr(fd), "pair")
		defer f.Close()
		c, err := net.FileConn(f)
		require.NoError(t, err)
		return c
	}
	return conn(fds[0]), conn(fds[1])
}
