package spoke_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/canary"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
)

// secretly makes an order with a plain variable, a secret and a file.
func secretly(plain, secret, file string, argv ...string) hub.SpawnRequest {
	r := asks(argv...)
	r.Spawn.Env = []commands.EnvVar{{Name: "PLAIN"}, {Name: "SECRET", As: commands.EnvSecret}, {Name: "KEY", As: commands.EnvFile}}
	r.Values = commands.Values{commands.NewSecret(plain), commands.NewSecret(secret), commands.NewSecret(file)}
	return r
}

// homeOf is the home of an attempt's agent.
func homeOf(s *meshtest.Spoke, task, attempt string) string {
	return filepath.Join(s.Dir, "agents", task, attempt, "home")
}

// An agent gets its values, at every level of isolation that this host has: it alone reads the
// file, which is gone when it is over.
func TestAnAgentGetsItsValues(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]string{"as the host confines": "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\nenvironment: [\"*\"]\n", "not confined": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Plan{Policy: policy, Passable: true}.Start(t, "attic")
			task := m.Order(t, secretly("1 ü\n2", "s3cret", "line 1\nline 2\n", "sh", "-c",
				`printf %s "$PLAIN" >plain; printf %s "$SECRET" >secret; cp "$KEY" file; stat -c '%a %u' "$KEY" >mode; id -u >me; echo "$KEY" >path; cat "$KEY" >/dev/null`))

			v := m.Wait(t, task)

			require.Equal(t, commands.Completed, v.State, "%s", v.Result)
			work := filepath.Join(m.Spokes["attic"].Dir, "agents", task, "1", "work")
			got := func(name string) string {
				raw, err := os.ReadFile(filepath.Join(work, name))
				require.NoError(t, err)
				return string(raw)
			}
			require.Equal(t, "1 ü\n2", got("plain"))
			require.Equal(t, "s3cret", got("secret"))
			require.Equal(t, "line 1\nline 2\n", got("file"))
			require.Equal(t, "600 "+got("me"), got("mode"))
			path := strings.TrimSpace(got("path"))
			require.Equal(t, filepath.Join(homeOf(m.Spokes["attic"], task, "1"), ".secrets", "KEY"), path)
			require.NoFileExists(t, path, "the attempt is over")
		})
	}
}

// Each attempt opens the values anew from the database, also in another process of the spoke,
// and each has a file of its own.
func TestValuesAreOpenedAgainForEachAttempt(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	gate, trace := filepath.Join(t.TempDir(), "gate"), filepath.Join(t.TempDir(), "trace")
	r := secretly("plain-value", "secret-value", "file-value", "sh", "-c", `echo "$PLAIN $SECRET $(cat "$KEY")" >>"$0"; until [ -e "$1" ]; do sleep 0.05; done; [ "$SPAWNMESH_ATTEMPT" = 3 ]`, trace, gate)
	r.Spawn.MaxRetries = 2
	waits := m.Order(t, r)
	meshtest.Await(t, "the first attempt", func() bool { return m.Agent(t, waits).State == commands.Running })
	m.Stop(t, "attic")
	m.Start(t, "attic")
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	s.Exec(t, `UPDATE due SET at = now()`)

	meshtest.Await(t, "the end", func() bool {
		s.Exec(t, `UPDATE due SET at = now() WHERE at > now()`)
		return m.Agent(t, waits).State.Terminal()
	})

	require.Equal(t, commands.Completed, m.Agent(t, waits).State)
	raw, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("plain-value secret-value file-value\n", 3), string(raw))
	for _, attempt := range []string{"1", "2", "3"} {
		require.NoFileExists(t, filepath.Join(homeOf(s, waits, attempt), ".secrets", "KEY"))
	}
}

// Who copies a ciphertext into a message of his own, or knows only the spoke's public key of
// another time, has nothing started.
func TestValuesOfAnotherMessageAreRefused(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{}.Rogue(t)
	spawn := func() *commands.Spawn {
		return &commands.Spawn{Task: meshtest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"true"}, Env: []commands.EnvVar{{Name: "TOKEN", As: commands.EnvSecret}}}
	}
	known := r.Valued(t, spawn(), "hunter2-value")
	r.Send(t, commands.QueueRun, known.Envelope)
	require.Equal(t, commands.Completed, r.Answer(t, known.ID, commands.ResultKind).(*commands.Result).State)
	copied := r.Voice.Voice.Valued(spawn(), known.ID, "hunter2-value")
	for name, change := range map[string]func(*commands.Spawn){
		"in another message": func(*commands.Spawn) {},
		"for another key":    func(s *commands.Spawn) { s.Sealed.Key = signing.SealingKeyIDOf(nil) },
	} {
		s := *copied
		s.Task = meshtest.NewID()
		sealed := *copied.Sealed
		s.Sealed = &sealed
		change(&s)
		order := r.Seal(t, &s, nil, nil)

		r.Send(t, commands.QueueRun, order.Envelope)

		refused := r.Answer(t, order.ID, commands.RefusedKind).(*commands.RefusedBody)
		require.Equal(t, signing.SealOpen, refused.Code, name)
		require.NotContains(t, refused.Why, "hunter2", name)
	}
	good := r.Valued(t, spawn(), "hunter2-value")
	r.Send(t, commands.QueueRun, good.Envelope)
	require.Equal(t, commands.Completed, r.Answer(t, good.ID, commands.ResultKind).(*commands.Result).State, "the next one")
}

// A spawn that comes again under another id brings its values anew; what waits is started with
// these, and is the same task.
func TestASpawnThatComesAgainBringsItsValues(t *testing.T) {
	t.Parallel()
	r := meshtest.Plan{Slots: 1}.Rogue(t)
	gate, trace := filepath.Join(t.TempDir(), "gate"), filepath.Join(t.TempDir(), "trace")
	first := r.Seal(t, &commands.Spawn{Task: meshtest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", `until [ -e "$0" ]; do sleep 0.05; done`, gate}}, nil, nil)
	r.Send(t, commands.QueueRun, first.Envelope)
	r.Answer(t, first.ID, commands.StartedKind)
	spawn := &commands.Spawn{Task: meshtest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", `echo "$TOKEN" >>"$0"`, trace}, Env: []commands.EnvVar{{Name: "TOKEN"}}}
	once, again, other := r.Valued(t, spawn, "a-value"), r.Valued(t, spawn, "a-value"), r.Valued(t, spawn, "another-value")
	for _, order := range []signing.Sealed{once, again} {
		r.Send(t, commands.QueueRun, order.Envelope)
		r.Answer(t, order.ID, commands.AcceptedKind)
	}
	r.Send(t, commands.QueueRun, other.Envelope)
	require.Equal(t, commands.TaskConflict, r.Answer(t, other.ID, commands.RefusedKind).(*commands.RefusedBody).Code)

	require.NoError(t, os.WriteFile(gate, nil, 0o600))

	require.Equal(t, commands.Completed, r.Answer(t, again.ID, commands.ResultKind).(*commands.Result).State)
	raw, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Equal(t, "a-value\n", string(raw))
}

// The database of a spoke has no value, while an agent runs and after it; nor has what the
// spoke keeps of the attempt.
func TestASpokeKeepsNoValue(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	c := canary.New()
	gate := filepath.Join(t.TempDir(), "gate")
	task := m.Order(t, secretly(c.Value, c.Value, c.Value, "sh", "-c", `until [ -e "$0" ]; do sleep 0.05; done`, gate))
	meshtest.Await(t, "the agent", func() bool { return m.Agent(t, task).State == commands.Running })
	own := func(path string) bool { return path == homeOf(s, task, "1") }

	hits, err := canary.Files(s.Dir, own, c)
	require.NoError(t, err)
	require.Empty(t, hits)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	m.Wait(t, task)
	hits, err = canary.Files(s.Dir, nil, c)

	require.NoError(t, err)
	require.Empty(t, hits, "the file that was the agent's is gone, too")
	for side, i := range map[string]*meshtest.Instance{"hub": m.Hub.Instance, "spoke": s.Instance} {
		require.False(t, c.In([]byte(i.Log.String())), "the log of the %s, which says what there is to debug", side)
		require.True(t, i.Log.Logger().Enabled(t.Context(), slog.LevelDebug))
	}
	require.DirExists(t, spoke.ControlDir(filepath.Dir(homeOf(s, task, "1"))))
}

// Secrets of an order, and those that the host gives, are not in what an agent writes, however
// it cuts and encodes them: neither on the disk nor on the way nor in a result.
func TestSecretsAreTakenOutOfOutput(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Policy: meshtest.Loose("version: 1\nruntimes: [exec]\ncommands: [\"*\"]\nenvironment: [\"*\"]\n")}.Start(t, "attic")
	s := m.Spokes["attic"]
	secret, file, host, plain := canary.New(), canary.New(), canary.New(), canary.New()
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "agents.env"), []byte("HOST="+host.Value+"\n"), 0o600))
	_, err := rewrite(t, s, "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\nenvironment: [\"*\"]\nenv_from_file: agents.env\n")
	require.NoError(t, err)
	task := m.Order(t, secretly(plain.Value, secret.Value, file.Value+"\n", "sh", "-c", `
		half=$(printf %.16s "$SECRET"); printf "one %s" "$half"; sleep 0.2; printf "%s two\n" "${SECRET#"$half"}"
		cat "$KEY"; echo "$HOST" >&2; printf %s "user:$SECRET" | base64; printf %s "$SECRET" | od -An -tx1 | tr -d ' \n'; echo
		printf '%s' "plain $PLAIN end"; exit 3`))

	v := m.Wait(t, task)

	require.Equal(t, commands.Failed, v.State)
	require.Equal(t, "one [redacted] two\n[redacted]\n", m.Stdout(t, task, true)[:len("one [redacted] two\n[redacted]\n")])
	require.Contains(t, m.Stdout(t, task, true), "plain "+plain.Value+" end", "what is no secret stays")
	for name, text := range map[string]string{"the result": string(v.Result), "the output": m.Stdout(t, task, true)} {
		for _, c := range []*canary.Canary{secret, file, host} {
			require.False(t, c.In([]byte(text)), name)
		}
	}
	for side, dir := range map[string]string{"hub": m.Hub.Dir, "spoke": s.Dir} {
		own := func(path string) bool { return path == filepath.Join(s.Dir, "agents.env") }
		hits, err := canary.Files(dir, own, secret, file, host)
		require.NoError(t, err)
		require.Empty(t, hits, side)
	}
	hits, err := canary.Files(spoke.ControlDir(filepath.Dir(homeOf(s, task, "1"))), nil, plain)
	require.NoError(t, err)
	require.NotEmpty(t, hits, "the output is looked into")
}
