package supervisor

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// copied returns a copy of a directory, as cp -a makes it.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	out, err := exec.CommandContext(t.Context(), "cp", "-a", dir, to).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}

// requireElsewhere asks in a copy what became of its attempt: it belongs to the original.
func requireElsewhere(t *testing.T, original, dir string, known Known) {
	t.Helper()
	_, _, err := Adopt(t.Context(), dir, known)
	var elsewhere *ElsewhereError
	require.ErrorAs(t, err, &elsewhere)
	require.Equal(t, original, elsewhere.Original)
}

// loseToken leaves a directory whose shim proves nothing to a spoke any more.
func loseToken(t *testing.T, dir string) {
	t.Helper()
	write(t, dir, specFile, "{}")
}

// What runs belongs to the original, whatever is to become of it, and however often a copy asks.
func TestAdoptionOfACopy(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]Known{"it goes on": {}, "its kill was ordered": {Killed: true}, "its time is over": {Timeout: time.Nanosecond, Over: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, dir := start(t, sh("sleep 600"))
			known.Marker, known.Began, known.Shim = a.saved.Marker, true, a.Shim()
			dup := copied(t, dir)

			requireElsewhere(t, dir, dup, known)
			requireElsewhere(t, dir, dup, known)

			require.True(t, alive(a.Pid()))
			require.NoFileExists(t, filepath.Join(dup, tombstoneFile))
			require.Equal(t, dir, Original(dup))
			lock, err := takeLock(dup)
			require.NoError(t, err)
			require.NotNil(t, lock, "Adopt keeps no lock")
			require.NoError(t, release(lock))
		})
	}
}

// Where its shim goes on after its directory was moved, nobody else's name for it counts.
func TestAdoptionOfAMovedDirectory(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		then func(t *testing.T, dir, moved string)
		ends bool
	}{
		"its shim answers":         {func(*testing.T, string, string) {}, false},
		"its shim is not believed": {func(t *testing.T, _, moved string) { loseToken(t, moved) }, true},
		"a copy has its name":      {func(t *testing.T, dir, moved string) { require.NoError(t, os.Rename(copied(t, moved), dir)) }, false},
		"a copy has its name, and loses to it": {func(t *testing.T, dir, moved string) {
			require.NoError(t, os.Rename(copied(t, moved), dir))
			loseToken(t, moved)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, dir := start(t, sh("sleep 600"))
			moved := filepath.Join(t.TempDir(), "moved")
			require.NoError(t, os.Rename(dir, moved))
			test.then(t, dir, moved)

			b, exit := adoptKnown(t, moved, Known{Marker: a.saved.Marker, Shim: a.Shim(), Began: true})

			require.Equal(t, test.ends, exit != nil)
			require.Equal(t, !test.ends, b != nil)
			require.Equal(t, !test.ends, alive(a.Pid()))
		})
	}
}

// A shim that is not on record works nowhere else: an agent can start one that says so.
func TestAnImpostorIsNotElsewhere(t *testing.T) {
	t.Parallel()
	a, dir := start(t, sh("sleep 600"))
	marker, other := a.Marker(), t.TempDir()
	require.NoError(t, a.Close())
	impostor := exec.Command(os.Args[0], shimArg, other, marker, deafArg)
	impostor.Env = []string{}
	out, err := impostor.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, impostor.Start())
	t.Cleanup(func() { _ = impostor.Process.Kill(); _ = impostor.Wait() })
	_, err = fmt.Fscan(out, new(string))
	require.NoError(t, err)
	require.NoError(t, unix.Kill(a.run.Shim, unix.SIGKILL))

	_, exit := adoptKnown(t, dir, Known{Marker: marker, Began: true})

	require.Equal(t, Lost, exit.Outcome)
	require.False(t, alive(a.Pid()))
	require.NoFileExists(t, filepath.Join(dir, originalFile))
}

// What the original has on record becomes the end of the attempt in the copy, with the output.
func TestTheEndOfACopyIsThatOfTheOriginal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known Known
		spoil func(t *testing.T, dir string) // in the original, after the end
		want  Outcome
		out   string
	}{
		"it has ended":                       {Known{}, nil, Exited, "up\nbye\n"},
		"its kill was ordered, too late":     {Known{Killed: true}, nil, Exited, "up\nbye\n"},
		"it has no record":                   {Known{}, func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, exitFile))) }, Lost, "up\n" + cutNote},
		"it is gone":                         {Known{}, func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) }, Lost, "up\n" + cutNote},
		"another attempt is there":           {Known{}, loseToken, Lost, "up\n" + cutNote},
		"its record is none":                 {Known{}, func(t *testing.T, dir string) { write(t, dir, exitFile, "{") }, Lost, "up\n" + cutNote},
		"its record is not to be believed":   {Known{}, func(t *testing.T, dir string) { write(t, dir, exitFile, `{"outcome":"killed"}`) }, Lost, "up\nbye\n" + cutNote},
		"a pipe is in the place of a stream": {Known{}, func(t *testing.T, dir string) { pipeInPlace(t, filepath.Join(dir, string(Stdout))) }, Exited, "up\n"},
		"a stream is longer than a shim's": {Known{OutputCap: 7}, func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, string(Stdout)), 1<<20))
		}, Exited, "up\nbye\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := filepath.Join(t.TempDir(), "gate")
			a, dir := start(t, sh("echo up; until [ -e "+gate+" ]; do sleep 0.01; done; echo bye"))
			eventually(t, "its first words", func() bool { return read(t, dir, string(Stdout)) == "up\n" })
			known := test.known
			known.Marker, known.Began, known.Shim = a.saved.Marker, true, a.Shim()
			dup := copied(t, dir)
			requireElsewhere(t, dir, dup, known)
			require.NoError(t, os.WriteFile(gate, nil, 0o600))
			recorded := ended(t, a)
			require.NoError(t, a.Close())
			if test.spoil != nil {
				test.spoil(t, dir)
			}

			_, exit := adoptKnown(t, dup, known)
			_, again := adoptKnown(t, dup, known)

			require.Equal(t, test.want, exit.Outcome)
			p, err := Read(dup, Stdout, 0, 1<<10, known.OutputCap)
			require.NoError(t, err)
			require.Equal(t, test.out, string(p.Data))
			require.True(t, p.Ended)
			exit.Damage, again.Damage = nil, nil
			require.Equal(t, exit, again)
			if test.spoil == nil {
				require.Equal(t, recorded, *exit)
			}
			info, err := os.Stat(filepath.Join(dup, string(Stdout)))
			require.NoError(t, err)
			require.LessOrEqual(t, info.Size(), Spec{OutputCap: known.OutputCap}.longest())
		})
	}
}

func pipeInPlace(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.Remove(name))
	require.NoError(t, unix.Mkfifo(name, 0o600))
}

// An agent that names a directory as the original is told nothing that it cannot read: the
// directory has to know the secret of its attempt.
func TestAnOriginalOfTheAgentsChoice(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"no path": "here", "a path that is no text": "/a\xff", "one that writes to a terminal": "/a\x1b[2J", "more than a path": "/" + string(make([]byte, 5000))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, originalFile, path)

			require.Empty(t, Original(dir))
		})
	}
	t.Run("one whose token is another", func(t *testing.T) {
		t.Parallel()
		victim, secret := start(t, sh("echo secret"))
		ended(t, victim)
		require.NoError(t, victim.Close()) // it has its record
		require.FileExists(t, filepath.Join(secret, exitFile))
		dir, gone := t.TempDir(), Shim{Pid: 1, Start: math.MaxUint64}
		spec, err := json.Marshal(savedSpec{Token: "mine"})
		require.NoError(t, err)
		write(t, dir, specFile, string(spec))
		write(t, dir, originalFile, secret)
		write(t, dir, string(Stdout), "own")

		_, exit := adoptKnown(t, dir, Known{Marker: newMarker(), Began: true, Shim: gone})

		require.Equal(t, Lost, exit.Outcome)
		require.Equal(t, "own"+cutNote, read(t, dir, string(Stdout)))
	})
}
