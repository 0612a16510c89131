package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// escaping is a script that starts a process of its own session and, once a file
// "go" is beside the file $1, ends its shim and writes the pid of the process into
// that one; before tells what it does to the directory $0 of its attempt.
func escaping(t *testing.T, before string) (spec Spec, dir, file string) {
	t.Helper()
	dir, file = filepath.Join(t.TempDir(), "attempt"), filepath.Join(t.TempDir(), "pid")
	spec = sh(`echo hi; setsid sleep 600 </dev/null >/dev/null 2>&1 & until [ -e "${1%/*}/go" ]; do sleep 0.01; done; ` + before + `; echo $! $PPID >"$1"; kill -9 $PPID; sleep 600`)
	spec.Argv = append(spec.Argv, dir, file)
	spec.NoCgroup = true
	return spec, dir, file
}

// escaped lets the script go and returns the pid of what it has started, when that is executed and the shim has ended.
func escaped(t *testing.T, dir, file string) int {
	t.Helper()
	eventually(t, "its output", func() bool { return read(t, dir, string(Stdout)) == "hi\n" })
	write(t, filepath.Dir(file), "go", "")
	list := pids(t, file, 2)
	eventually(t, "the end of the shim", func() bool {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", list[0]))
		return !alive(list[1]) && (!alive(list[0]) || string(comm) != "sh\n" && string(comm) != "setsid\n")
	})
	return list[0]
}

// Whatever an agent makes of the files of its attempt before it ends its shim:
// the attempt ends soon, nothing of it lives, and what was wrong is said.
func TestSpoiltDirectories(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ before, damage string }{
		"the lock is a directory":    {`rm "$0/lock"; mkdir "$0/lock"`, "lock is not a regular file"},
		"the lock is a link":         {`rm "$0/lock"; ln -s /dev/null "$0/lock"`, "lock is not a regular file"},
		"the lock is a pipe":         {`rm "$0/lock"; mkfifo "$0/lock"`, "lock is not a regular file"},
		"the lock is a link to none": {`rm "$0/lock"; ln -s nothing "$0/lock"`, "lock is not a regular file"},
		"the record is a directory":  {`mkdir -p "$0/exit.json/x"; rm "$0/exit.json.tmp"; mkdir -p "$0/exit.json.tmp/x"`, "exit.json is not a regular file"},
		"the record is a pipe":       {`mkfifo "$0/exit.json"`, "exit.json is not a regular file"},
		"the record is endless":      {`truncate -s 2G "$0/exit.json"`, "exit.json has more than 1048576 bytes"},
		"the record is a lie":        {`echo '{"outcome":"exited","code":0}' >"$0/exit.json"`, "the exit record says"},
		"the output is a link":       {`rm "$0/stdout"; ln -s /etc/passwd "$0/stdout"`, ""},
		"no file is left":            {`rm -r "$0"/*`, ""},
		"the directory is a file":    {`rm -r "$0"; touch "$0"`, "lock is not a regular file"},
		"there is no directory":      {`rm -r "$0"`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, dir, file := escaping(t, tt.before)
			a, err := Start(t.Context(), dir, spec)
			require.NoError(t, err)
			endAfter(t, a)
			child := escaped(t, dir, file)

			got := ended(t, a)

			require.False(t, alive(child))
			require.Equal(t, Lost, got.Outcome)
			if tt.damage == "" {
				require.NoError(t, got.Damage)
			} else {
				require.ErrorContains(t, got.Damage, tt.damage)
			}
		})
		t.Run(name+" while no spoke runs", func(t *testing.T) {
			t.Parallel()
			spec, dir, file := escaping(t, tt.before)
			killedSpoke(t, dir, spec)
			child := escaped(t, dir, file)

			a, exit := adopt(t, dir)

			require.Nil(t, a)
			require.NotNil(t, exit)
			require.False(t, alive(child))
			require.NoError(t, os.RemoveAll(dir))
		})
	}
}

// The record of an agent that has killed its shim, which no spoke saw, is believed; what
// it left behind is ended all the same.
func TestAForgedRecordHidesNobody(t *testing.T) {
	t.Parallel()
	spec, dir, file := escaping(t, `echo '{"outcome":"exited","code":0}' >"$0/exit.json"`)
	agent, err := tree.ReadProcess(killedSpoke(t, dir, spec))
	require.NoError(t, err)
	child := escaped(t, dir, file)
	eventually(t, "the end of the shim", func() bool { return !alive(agent.Parent) })

	_, exit := adopt(t, dir)

	require.Equal(t, Exited, exit.Outcome)
	require.False(t, alive(child))
}

// An agent of an unprivileged user closes its directory. Kill and timeout reach
// its tree all the same, and what it wrote can be read.
func TestClosedDirectories(t *testing.T) {
	t.Parallel()
	unprivileged(t, func(t *testing.T) {
		for name, before := range map[string]string{
			"that of the attempt": `chmod 000 "$0"`,
			"that above":          `chmod 000 "$0/.."`,
			"the lock":            `chmod 000 "$0/lock"`,
			"the record":          `touch "$0/exit.json"; chmod 000 "$0/exit.json"`,
		} {
			t.Run(name, func(t *testing.T) {
				spec, dir, file := escaping(t, before)
				a, err := Start(t.Context(), dir, spec)
				require.NoError(t, err)
				endAfter(t, a)
				child := escaped(t, dir, file)

				got := ended(t, a)

				require.Equal(t, Lost, got.Outcome)
				require.False(t, alive(child))
				p, err := Read(dir, Stdout, 0, 100, 0)
				require.NoError(t, err)
				require.Equal(t, "hi\n"+cutNote, string(p.Data))
				require.True(t, p.Ended)
				require.NoError(t, Remove(dir))
			})
		}
		t.Run("by an agent that ends by itself", func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "attempt")
			spec := sh(`echo hi; chmod 000 "$0"`)
			spec.Argv = append(spec.Argv, dir)
			a, err := Start(t.Context(), dir, spec)
			require.NoError(t, err)

			require.Equal(t, Exited, ended(t, a).Outcome)

			require.NoError(t, a.Close())
			p, err := Read(dir, Stdout, 0, 100, 0)
			require.NoError(t, err)
			require.Equal(t, "hi\n", string(p.Data))
			require.True(t, p.Ended)
		})
	})
}

// An agent that closes its directory, or one around it, is adopted all the same, and loses neither its output nor its end.
func TestAdoptionInClosedDirectories(t *testing.T) {
	t.Parallel()
	unprivileged(t, func(t *testing.T) {
		for name, up := range map[string]string{"the control files": "", "the attempt": "..", "the task": "../.."} {
			t.Run(name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "task", "1", "control")
				require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
				a, child := detached(t, dir)
				known := Known{Marker: a.Marker(), Shim: a.Shim(), Began: true}
				require.NoError(t, a.Close())
				require.NoError(t, os.Chmod(filepath.Join(dir, up), 0))

				b, exit := adoptKnown(t, dir, known)

				require.Nil(t, exit)
				require.NoError(t, b.Kill(t.Context(), "enough", 0))
				require.Equal(t, Killed, ended(t, b).Outcome)
				require.NoError(t, b.Close())
				require.False(t, alive(child))
			})
		}
	})
}

// A record that no shim writes counts as none.
func TestForgedRecords(t *testing.T) {
	t.Parallel()
	valid := `{"outcome":"exited","code":0,"stdout":{"bytes":9,"size":9},"stderr":{}}`
	many := func(one string, n int) string { return "[" + strings.Repeat(one+",", n) + one + "]" }
	stdout := func(s string) string { return strings.Replace(valid, `"bytes":9`, s+`,"bytes":9`, 1) }
	with := func(s string) string { return strings.Replace(valid, `"code":0`, s, 1) }
	tests := map[string]string{
		"an unknown outcome":    `{"outcome":"weird"}`,
		"a large code":          with(`"code":1099511627776`),
		"a signal with a NUL":   with(`"signal":"a\u0000b"`),
		"a long signal":         with(`"signal":"SIG` + strings.Repeat("A", 1000) + `"`),
		"a reason with a NUL":   with(`"reason":"\u0000"`),
		"a level with a NUL":    with(`"level":"\u0000"`),
		"many ended processes":  with(`"reaped":` + many(`{"pid":2,"command":"x"}`, attempt.MaxReaped)),
		"a process 0":           with(`"reaped":[{"pid":0,"command":"x"}]`),
		"a long command":        with(`"reaped":[{"pid":2,"command":"` + strings.Repeat("x", 200) + `"}]`),
		"a negative count":      with(`"reaped_total":-5`),
		"many survivors":        with(`"survivors":` + many(`{"pid":2,"command":"x"}`, attempt.MaxSurvivors)),
		"many gaps":             stdout(`"gaps":` + many(`{"from":1,"to":2,"at":1}`, maxGaps)),
		"a gap from end to":     stdout(`"gaps":[{"from":2,"to":1,"at":1}]`),
		"a gap behind the end":  stdout(`"gaps":[{"from":2,"to":10,"at":1}]`),
		"a digest of no digits": stdout(`"sha256":"zz"`),
		"a negative size":       strings.Replace(valid, `"size":9`, `"size":-9`, 1),
		"an enormous size":      strings.Replace(valid, `"size":9`, `"size":9007199254740992`, 1),
		"no JSON":               `{"outcome":"exited"`,
	}
	require.NoError(t, json.Unmarshal([]byte(valid), new(Exit)))
	for name, record := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			_, err := saveSpec(dir, sh("exit 0"))
			require.NoError(t, err)
			write(t, dir, string(Stderr), "")
			write(t, dir, attempt.ExitFile, valid)
			_, honest := adopt(t, dir)
			require.Equal(t, Exited, honest.Outcome)
			write(t, dir, attempt.ExitFile, record)

			_, exit := adopt(t, dir)

			require.Equal(t, Lost, exit.Outcome)
			require.Error(t, exit.Damage)
			require.NoError(t, check(exit))
			_, again := adopt(t, dir)
			require.Equal(t, Lost, again.Outcome)
			require.NoError(t, again.Damage, "it has a good record now")
		})
	}
}
