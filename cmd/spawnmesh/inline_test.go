package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// put writes a file for a test and returns its path.
func put(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), mode))
	return path
}

// What is read for an order is in it as it was, and the way to the hub changes nothing of it.
func TestWhatAnOrderBrings(t *testing.T) {
	t.Parallel()
	script, data := put(t, "with:colon", "#!/bin/sh\n", 0o755), put(t, "data", "\x00\xff", 0o644)
	f := spawnFlags{env: []string{"CI=1"}, files: []string{script + ":run.sh", data + ":in/data"}, stdin: true, input: "input\x00", stdinFile: "/no/such/file"}
	_, err := f.environment()
	require.NoError(t, err)

	err = f.bring()

	require.NoError(t, err)
	got := hub.RequestOf(f.req.Revealed())
	require.Equal(t, f.req.Spawn, got.Spawn)
	require.Equal(t, []commands.File{{Path: "run.sh", Exec: true}, {Path: "in/data"}}, got.Spawn.Files)
	require.Equal(t, commands.Values{commands.NewSecret("1"), commands.NewSecret("#!/bin/sh\n"), commands.NewSecret("\x00\xff"), commands.NewSecret("input\x00")}, got.Values)
	named := spawnFlags{stdinFile: data}
	require.NoError(t, named.bring())
	require.Equal(t, commands.Values{commands.NewSecret("\x00\xff")}, named.req.Values)
	nothing := spawnFlags{stdin: true}
	require.NoError(t, nothing.bring())
	require.False(t, nothing.req.Spawn.Stdin, "without any it is empty as without the flag")
}

func TestWhatAnOrderCannotBring(t *testing.T) {
	t.Parallel()
	dir, large := t.TempDir(), put(t, "large", strings.Repeat("x", commands.MaxValueBytes+1), 0o600)
	for pair, why := range map[string]string{
		"data":                  "is not SRC:DST",
		":data":                 "is not SRC:DST",
		dir + "/none:data":      "no such file",
		dir + ":data":           "is a directory",
		large + ":data":         "has more than 96 KiB",
		large + ":../data":      "does not lead to a place in the agent's directory",
		large + ":/etc/passwd":  "does not lead to a place in the agent's directory",
		large + ":":             "does not lead to a place in the agent's directory",
		large + ":in//data":     "not in its shortest form",
		large + ":in\x1b[2Jout": "control characters",
	} {
		f := spawnFlags{files: []string{pair}}
		err := f.bring()
		require.ErrorContains(t, err, why, pair)
		require.Equal(t, exitMisuse, exitOfCode(refusal(err).Code), pair)
		require.NotEmpty(t, refusal(err).Hint, pair)
	}
	for _, f := range []spawnFlags{{stdinFile: large}, {stdinFile: dir}, {stdinFile: dir + "/none"}} {
		require.Equal(t, exitMisuse, exitOfCode(refusal(f.bring()).Code))
	}
	a := &app{in: bytes.NewReader(make([]byte, commands.MaxValueBytes+1))}
	_, err := a.standardInput("--stdin")
	require.ErrorContains(t, err, "standard input has more than 96 KiB")
}

// A program from here runs there, with a file and standard input from here; who asks is told what it brought.
func TestFilesByHand(t *testing.T) {
	t.Parallel()
	m := startHub(t)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", policy.Presets["open"], "--heartbeat", "1s"))
	h := hand{t: t, dir: m.Hub.Dir}
	script, data := put(t, "script", "#!/bin/sh\ncat in/data -\n", 0o755), put(t, "data", "a file\x00", 0o644)

	ran := h.run("input\xff", "run", "--file", script+":run.sh", "--file", data+":in/data", "--stdin", "--title", "brought", "--", "./run.sh")

	require.Zero(t, ran.code, ran.err)
	require.Equal(t, "a file\x00input\xff", ran.out)
	require.Contains(t, h.do("status", "brought"), "run.sh, in/data, standard input")
	task := put(t, "task.md", "Say hi.\n", 0o644)
	for _, args := range [][]string{{"--prompt", "Say hi.\n"}, {"--prompt-file", task}, {"--prompt-file", "-"}} {
		told := h.run("Say hi.\n", append(append([]string{"run", "--title", "told"}, args...), "--", "sh", "-c", `cat - "$SPAWNMESH_PROMPT_FILE"`)...)
		require.Equal(t, "Say hi.\n", told.out, told.err)
	}
	h.refused(exitMisuse, "both given", "spawn", "--prompt", "x", "--prompt-file", task, "--", "true")
	h.refused(exitMisuse, "both read standard input", "spawn", "--prompt-file", "-", "--stdin", "--", "true")
	h.refused(exitMisuse, "is empty", "spawn", "--prompt-file", put(t, "none", "", 0o644), "--", "true")
	h.refused(exitMisuse, "files are put into a fresh directory only", "spawn", "--file", data+":data", "--dir", "/tmp", "--", "true")
	h.refused(exitMisuse, "runtime noop starts nothing", "spawn", "--file", data+":data", "--runtime", "noop")
	h.refused(exitRefused, "the file data is given twice", "spawn", "--file", data+":data", "--file", data+":data", "--", "true")
	there := hand{t: t, dir: m.Spokes["attic"].Dir}
	require.Contains(t, there.do("spoke", "policy", "explain", "--file", "x:data", "--stdin", "--", "sh"), "files and standard input of an order: any")
	there.refused(exitRefused, "files and standard input of an order are not allowed", "--data-dir", denied(t), "spoke", "policy", "test", "--file", "x:data", "--", "true")
}

// denied is a directory whose policy takes no files.
func denied(t *testing.T) string {
	t.Helper()
	return filepath.Dir(put(t, "policy.yaml", "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\nisolation: none\nallow_root_agents: true\n", 0o600))
}
