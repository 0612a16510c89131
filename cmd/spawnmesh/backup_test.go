package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/backup"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

// passphraseIn writes a file with a passphrase.
func passphraseIn(t *testing.T, words string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "passphrase")
	require.NoError(t, os.WriteFile(path, []byte(words+"\n"), 0o600))
	return path
}

// A hub is backed up while its spoke runs agents, gives more orders, and is lost with its disk.
// Restored, it knows what its spoke knows, and every agent has run once.
func TestAHubThatWasLostIsRestored(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	tr, gate := newTrace(t), filepath.Join(t.TempDir(), "gate")
	require.NoError(t, os.Chmod(filepath.Dir(gate), 0o755))
	h, s := hand{t: t, dir: m.Hub.Dir}, hand{t: t, dir: m.Spokes["attic"].Dir}
	order := func(name string) string {
		return h.spawn("--spoke", "attic", "--", "sh", "-c", `echo start "$0" >>"$1"; echo said by "$0"; until [ -e "$2" ]; do sleep 0.05; done; echo end "$0" >>"$1"`, name, tr.path, gate)
	}
	ended := h.spawn(append([]string{"--spoke", "attic", "--"}, tr.agent("ended", "0")...)...)
	h.ends(ended)
	h.do("schedule", "create", "often", "--cron", "* * * * *", "--runtime", "noop", "--spoke", "attic")
	h.do("schedule", "pause", "often", "--reason", "the disk")
	h.do("schedule", "create", "yearly", "--cron", "@yearly", "--runtime", "noop", "--spoke", "attic")
	h.do("webhook", "create", "pager", "https://pager.invalid/in", "--on", "connection.state_changed")
	h.do("webhook", "create", "board", "https://board.invalid/in", "--on", "connection.state_changed")
	h.do("webhook", "disable", "board", "--reason", "its host moves")
	for _, name := range []string{"opx", "ci"} {
		h.do("token", "create", "--name", name, "--role", "operator", "--workspace", "*")
	}
	running := order("running")
	h.runs(running)
	passphrase := passphraseIn(t, "correct horse battery")
	dir := filepath.Join(t.TempDir(), "backup")

	var made backup.Manifest
	require.NoError(t, json.Unmarshal([]byte(h.do("backup", dir, "--passphrase-file", passphrase, "-o", "json")), &made))
	require.True(t, made.Hub)
	h.do("token", "revoke", "opx")
	later := order("later")
	h.runs(later)
	m.Hub.Kill()
	require.NoError(t, os.Rename(m.Hub.Dir, m.Hub.Dir+".lost"))
	require.Contains(t, h.do("backup", "verify", dir, "--passphrase-file", passphrase), "is a whole backup of instance "+made.Instance)
	back := h.run("", "restore", dir, "--passphrase-file", passphrase)
	require.Zero(t, back.code, back.err)
	require.Contains(t, back.err, "start it; it notices that it was restored, and asks its peers for what they know: spawnmesh --data-dir "+h.dir+" hub run")
	require.Contains(t, back.err, "its schedules are paused then, and order nothing until somebody resumes them, as with: spawnmesh --data-dir "+h.dir+" schedule resume --all\n")
	require.NoError(t, m.Hub.Start(t.Context()))
	yearly := h.run("", "schedule", "show", "yearly")
	require.Contains(t, yearly.out, "paused: restored\n")
	require.Equal(t, "it is paused since this hub was restored from a backup; to let it go on: spawnmesh --data-dir "+h.dir+" schedule resume yearly\n", yearly.err)
	require.Regexp(t, `(?m)^schedules +1 of 2 order nothing since the database was restored from a backup; to let them go on: .* schedule resume --all$`, h.run("", "doctor").out)
	require.Equal(t, "yearly\n", h.do("schedule", "resume", "--all", "-o", "name"))
	h.do("schedule", "pause", "yearly", "--reason", "restored")
	require.Equal(t, "no schedule is paused because of a restore\n", h.run("", "schedule", "resume", "--all", "-o", "table").out, "somebody's word is no restore")
	require.Contains(t, h.do("schedule", "show", "often"), "paused: the disk\n", "somebody has paused it")
	require.Contains(t, back.err, "its webhooks are disabled then, and told nothing until somebody enables them")
	require.Regexp(t, `(?m)^state +restored$`, h.do("webhook", "show", "pager"))
	require.Regexp(t, `(?m)^webhooks +1 of 2 are told nothing since the database was restored from a backup; to let them go on: .* webhook enable --all$`, h.run("", "doctor").out)
	require.Equal(t, "pager\n", h.do("webhook", "enable", "--all", "-o", "name"))
	require.Contains(t, h.do("webhook", "show", "board"), "disabled: its host moves\n", "somebody has disabled it")
	require.Contains(t, back.err, "its tokens let nobody in then, until somebody confirms them: revoke those that were revoked since, then: spawnmesh --data-dir "+h.dir+" token confirm --all\n")
	require.Regexp(t, `(?m)^opx +restored `, h.do("token", "list"))
	require.Regexp(t, `(?m)^tokens +2 of 2 let nobody in since the database was restored from a backup; .* token confirm --all$`, h.run("", "doctor").out)
	h.do("token", "revoke", "opx")
	require.Regexp(t, `(?m)^ci +valid `, h.do("token", "confirm", "--all", "-o", "table"))
	require.Equal(t, "no token waits to be confirmed\n", h.run("", "token", "confirm", "--all", "-o", "table").out)
	require.Equal(t, "the token ci is valid\n", h.do("token", "confirm", "ci", "-o", "table"))
	h.refused(exitConflict, "the token opx was revoked", "token", "confirm", "opx")
	h.refused(exitMisuse, "takes the id or the name of a token, or --all", "token", "confirm")
	require.NoError(t, m.AwaitLink(t.Context(), "attic"))
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting until the hub knows again what it ordered", func() (bool, error) {
		return h.run("", "status", later).code == 0, nil
	}))
	h.runs(later)
	require.NoError(t, os.WriteFile(gate, nil, 0o644))

	for _, id := range []string{ended, running, later} {
		require.Equal(t, commands.Completed, h.ends(id).State)
		var there struct{ State commands.State }
		s.read(&there, 0, "status", id)
		require.Equal(t, commands.Completed, there.State, "both sides agree")
	}
	starts, ends := tr.counts(t)
	once := map[string]int{"ended": 1, "running": 1, "later": 1}
	require.Equal(t, once, starts)
	require.Equal(t, once, ends)
	require.Contains(t, h.do("logs", "-f", running), "said by running")
	require.Contains(t, m.Hub.LastWords()+h.do("audit", "list", "--limit", "500"), "RESYNC")
}

// What a person sees where a backup cannot be made, read or restored; nothing is made by it.
func TestBackupsByHand(t *testing.T) {
	t.Parallel()
	none, here := fresh(t), fresh(t)
	withCluster(t, here.dir)
	dir, passphrase := filepath.Join(t.TempDir(), "b"), passphraseIn(t, "correct horse battery")
	none.refused(exitNotFound, "there is no instance in "+none.dir, "backup", dir, "--passphrase-file", passphrase)
	here.refused(exitMisuse, "there is no passphrase, and no terminal to ask for it\n           give --passphrase-file FILE", "backup", dir)
	here.refused(exitMisuse, "the passphrase has less than 12 bytes", "backup", dir, "--passphrase-file", passphraseIn(t, "short"))
	here.refused(exitMisuse, "--recipient is no age recipient", "backup", dir, "--recipient", "age1x")
	here.refused(exitMisuse, "one opens the keys", "backup", dir, "--recipient", "age1x", "--passphrase-file", passphrase)
	loose := passphraseIn(t, "correct horse battery")
	require.NoError(t, os.Chmod(loose, 0o644))
	here.refused(exitMisuse, loose+" has mode 0644: others can use it; run: chmod 600 "+loose, "backup", dir, "--passphrase-file", loose)
	here.refused(exitMisuse, "there is no directory "+dir+"; nothing was changed", "backup", filepath.Join(dir, "deep"), "--passphrase-file", passphrase)
	require.NoDirExists(t, dir)

	require.NoError(t, os.Mkdir(filepath.Join(here.dir, "nats"), 0o700)) // a hub's
	here.do("backup", dir, "--passphrase-file", passphrase)

	here.refused(exitConflict, dir+" is not empty; nothing was changed", "backup", dir, "--passphrase-file", passphrase)
	here.refused(exitConflict, here.dir+" is not empty; nothing was changed", "restore", dir, "--passphrase-file", passphrase)
	none.refused(exitMisuse, "this is not the passphrase", "restore", dir, "--passphrase-file", passphraseIn(t, "another horse battery"))
	none.refused(exitMisuse, "this is not the passphrase", "backup", "verify", dir, "--passphrase-file", passphraseIn(t, "another horse battery"))
	entries, err := os.ReadDir(none.dir)
	require.NoError(t, err)
	require.Empty(t, entries)
	require.Contains(t, none.do("restore", dir, "--passphrase-file", passphrase), "restored instance ")
	for _, line := range []string{"schedule list", "webhook list", "schedule pause hold --reason over"} {
		none.refused(exitUnreachable, "start it: spawnmesh --data-dir "+none.dir+" hub run", strings.Fields(line)...)
	}
}

// An interrupt of a backup or a restore is no fault of PostgreSQL's programs. It leaves nothing, and says so.
func TestAnInterruptedBackupLeavesNothing(t *testing.T) {
	t.Parallel()
	here, top := fresh(t), fresh(t).dir
	withCluster(t, here.dir)
	whole, passphrase := filepath.Join(top, "whole"), passphraseIn(t, "correct horse battery")
	here.do("backup", whole, "--passphrase-file", passphrase)
	bin, begun := slowTools(t)
	for _, line := range [][]string{{"restored", "was not made", "restore", whole}, {"backup", "nothing was written", "backup", filepath.Join(top, "backup")},
		{"list", "the backup was not read to its end", "backup", "verify", whole}} {
		if line[0] == "list" {
			require.NoError(t, os.WriteFile(filepath.Join(bin, line[0]), nil, 0o600))
		}
		h := hand{t: t, dir: here.dir, env: []string{"SPAWNMESH_PG_BIN=" + bin}}
		if line[0] == "restored" {
			h.dir = filepath.Join(top, line[0])
		}
		c := h.command(t.Context(), append(line[2:], "--passphrase-file", passphrase)...)
		var said strings.Builder
		c.Stderr = &said
		require.NoError(t, c.Start())
		require.Eventually(t, func() bool { return os.Remove(begun) == nil }, time.Minute, 10*time.Millisecond, line)

		require.NoError(t, c.Process.Signal(os.Interrupt))
		_ = c.Wait()

		require.Equal(t, exitInterrupted, c.ProcessState.ExitCode(), "%s", &said)
		require.Regexp(t, "^interrupted; .*"+line[1]+"\n$", hurried(said.String()))
		left, err := os.ReadDir(top)
		require.NoError(t, err)
		require.Len(t, left, 1, "the whole backup alone")
	}
}

// slowTools is a directory of PostgreSQL's programs whose pg_dump and pg_restore end never, once they work on a database;
// then there is a file begun. So it is with lists of what a dump has, once there is a file list in dir.
func slowTools(t *testing.T) (dir, begun string) {
	t.Helper()
	dir = t.TempDir()
	begun = filepath.Join(dir, "begun")
	programs, err := postgres.Find(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Join(programs, "postgres"), filepath.Join(dir, "postgres")))
	for _, name := range []string{"pg_dump", "pg_restore"} {
		tool, err := postgres.Tool(t.Context(), "", name, 15)
		require.NoError(t, err)
		text := "#!/bin/sh\ncase $1 in --version) exec " + tool + " \"$@\";; --list) [ -e " + dir + "/list ] || exec " + tool + " \"$@\";; esac\n: >" + begun + "\nexec sleep 600\n"
		syscall.ForkLock.RLock() // no child has it open for writing, so it can be run
		err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755)
		syscall.ForkLock.RUnlock()
		require.NoError(t, err)
	}
	return dir, begun
}

// A new passphrase is asked for twice, and a terminal does not show it. An interrupt ends the question.
func TestAPassphraseIsTypedTwiceAndNotShown(t *testing.T) {
	t.Parallel()
	keyboard, screen := aTerminal(t, 80)
	a := &app{in: screen, err: screen}
	seen := ""
	await := func(prompt string) {
		for got := make([]byte, 4096); !strings.HasSuffix(seen, prompt); {
			n, err := keyboard.Read(got)
			require.NoError(t, err)
			seen += string(got[:n])
		}
	}
	asked := func(first, second string) (words string, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			words, err = (&secretFlags{}).words(t.Context(), a, true)
		}()
		await("passphrase of the backup: ")
		_, _ = keyboard.WriteString(first + "\n")
		await("once more: ")
		_, _ = keyboard.WriteString(second + "\n")
		<-done
		return words, err
	}
	words, err := asked("correct horse battery", "correct horse battery")
	require.NoError(t, err)
	require.Equal(t, "correct horse battery", words)
	_, err = asked("correct horse battery", "correct horse buttery")
	require.ErrorContains(t, err, "the two passphrases are not the same; nothing was done")
	require.NotContains(t, seen, "horse")

	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	_, err = a.askSecret(ctx, "passphrase: ")
	require.ErrorIs(t, err, context.Canceled)
	shown, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	require.NoError(t, err)
	require.NotZero(t, shown.Lflag&unix.ECHO, "the terminal shows again what is typed")
}
