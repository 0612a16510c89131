package spoke_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// allBytes are all that a file can hold, and no text.
var allBytes = func() string {
	b := make([]byte, 1024)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}()

// bringing makes an order with a program, a file in a directory and standard input.
func bringing(program, data, stdin string, argv ...string) hub.SpawnRequest {
	r := asks(argv...)
	r.Spawn.Files, r.Spawn.Stdin = []commands.File{{Path: "run.sh", Exec: true}, {Path: "in/deep/data.bin"}}, true
	r.Values = commands.Values{commands.NewSecret(program), commands.NewSecret(data), commands.NewSecret(stdin)}
	return r
}

// workOf is the directory of an attempt's agent.
func workOf(s *meshtest.Spoke, task, attempt string) string {
	return filepath.Join(s.Dir, "agents", task, attempt, "work")
}

func contentOf(t *testing.T, parts ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	return string(raw)
}

// An agent finds the files of its order, as they were and its own, and reads its standard input,
// at every level of isolation that this host has.
func TestAnAgentGetsItsFiles(t *testing.T) {
	t.Parallel()
	levels := map[string]string{"as the host confines": "", "not confined": "isolation: none\nallow_root_agents: true\n"}
	if _, err := exec.LookPath("bwrap"); err == nil {
		levels["in a bubble"] = "isolation: bubble\n"
		if os.Geteuid() == 0 {
			levels["in a bubble"] = "isolation: user+bubble\n"
		}
	}
	if os.Geteuid() == 0 {
		levels["by a user"] = "isolation: user\n"
	}
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := confined(t, level)
			task := m.Order(t, bringing("#!/bin/sh\nset -e\ncat >got; cat /dev/stdin >again; cp in/deep/data.bin copy; stat -c '%a %u' run.sh in/deep/data.bin in in/deep >modes; id -u >me; echo x >>in/deep/data.bin; echo y >in/new\n",
				allBytes, allBytes+"\x00", "./run.sh"))

			v := m.Wait(t, task)

			require.Equal(t, commands.Completed, v.State, "%s %s", v.Result, v.Refusal)
			work := workOf(m.Spokes["attic"], task, "1")
			me := " " + contentOf(t, work, "me")
			require.Equal(t, "700"+me+"600"+me+"700"+me+"700"+me, contentOf(t, work, "modes"))
			require.Equal(t, allBytes+"\x00", contentOf(t, work, "got"))
			require.Equal(t, allBytes+"\x00", contentOf(t, work, "again"))
			require.Equal(t, allBytes, contentOf(t, work, "copy"))
			require.Equal(t, allBytes+"x\n", contentOf(t, work, "in/deep/data.bin"), "it is the agent's")
		})
	}
}

// What an order may bring together is 96 KiB, to the byte.
func TestAnOrderBrings96KiB(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	r := asks("sh", "-c", "cat >got")
	r.Spawn.Files, r.Spawn.Stdin = []commands.File{{Path: "data"}}, true
	half := strings.Repeat("\xff", commands.MaxValueBytes/2)
	r.Values = commands.Values{commands.NewSecret(half), commands.NewSecret(half)}
	task := m.Order(t, r)
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	work := workOf(m.Spokes["attic"], task, "1")
	require.Equal(t, half, contentOf(t, work, "data"))
	require.Equal(t, half, contentOf(t, work, "got"))
	r.Values[1] = commands.NewSecret(half + "x")

	err := m.Hub.Ask(t, "POST", "/api/v1/tasks", r.Revealed(), nil)

	require.Equal(t, commands.Validation, commands.CodeOf(err))
	require.ErrorContains(t, err, "limit 98304 (96 KiB)")
}

// Each attempt has the files anew and reads its standard input from the start, also in another
// process of the spoke, which has taken the order before it started it.
func TestEachAttemptGetsItsFilesAnew(t *testing.T) {
	t.Parallel()
	m := meshtest.Plan{Slots: 1}.Start(t, "attic")
	s := m.Spokes["attic"]
	gate, trace := filepath.Join(t.TempDir(), "gate"), filepath.Join(t.TempDir(), "trace")
	first := m.Spawn(t, "attic", "sh", "-c", `until [ -e "$0" ]; do sleep 0.05; done`, gate)
	meshtest.Await(t, "the agent that has the slot", func() bool { return m.Agent(t, first).State == commands.Running })
	r := bringing("#!/bin/sh\necho \"$(cat) $(cat in/deep/data.bin)\" >>\"$1\"; echo spoilt >in/deep/data.bin; rm run.sh; [ $SPAWNMESH_ATTEMPT = 3 ]\n", "data", "input", "./run.sh", trace)
	r.Spawn.MaxRetries = 2
	task := m.Order(t, r)
	meshtest.Await(t, "the order to be taken", func() bool { return m.Agent(t, task).AcceptedAt != nil })
	m.Stop(t, "attic")
	m.Start(t, "attic")
	require.Equal(t, commands.Queued, m.Agent(t, task).State)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))

	meshtest.Await(t, "the end", func() bool {
		s.Exec(t, `UPDATE due SET at = now() WHERE at > now()`)
		return m.Agent(t, task).State.Terminal()
	})

	require.Equal(t, commands.Completed, m.Agent(t, task).State)
	require.Equal(t, strings.Repeat("input data\n", 3), contentOf(t, trace))
}

// An attempt that makes links where the files of the next one would be leads none of them
// elsewhere, although it has the user of the spoke.
func TestALinkOfAnEarlierAttemptLeadsNowhere(t *testing.T) {
	t.Parallel()
	for name, link := range map[string]string{
		"in the place of a file":             `mkdir -p "$next"; ln -s "$1/victim" "$next/run.sh"`,
		"in the place of a directory":        `mkdir -p "$next"; ln -s "$1" "$next/in"`,
		"in the place of the work directory": `mkdir -p ../../2; ln -s "$1" "$next"`,
		"in the place of the attempt":        `ln -s "$1" ../../2`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := meshtest.Start(t, "attic")
			s := m.Spokes["attic"]
			elsewhere := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "victim"), []byte("as it was"), 0o600))
			r := bringing("#!/bin/sh\nnext=../../2/${PWD##*/}\n"+link+"; exit 1\n", "data", "input", "./run.sh", elsewhere)
			r.Spawn.MaxRetries = 1
			task := m.Order(t, r)

			meshtest.Await(t, "the end", func() bool {
				s.Exec(t, `UPDATE due SET at = now() WHERE at > now()`)
				return m.Agent(t, task).State.Terminal()
			})

			require.Equal(t, "as it was", contentOf(t, elsewhere, "victim"))
			require.NoFileExists(t, filepath.Join(elsewhere, "run.sh"))
			require.NoDirExists(t, filepath.Join(elsewhere, "deep"))
		})
	}
}

// A host that says nothing of files takes none, and no standard input: what its programs read or
// run is then the host's. Its hub knows that before it orders.
func TestAHostMayTakeNoFiles(t *testing.T) {
	t.Parallel()
	const rules = "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\n"
	m := meshtest.Plan{Policy: meshtest.Loose(rules)}.Start(t, "attic")
	order := func(r hub.SpawnRequest) error { return m.Hub.Ask(t, "POST", "/api/v1/tasks", r.Revealed(), nil) }
	file, input := asks("true"), asks("true")
	file.Spawn.Files, file.Values = []commands.File{{Path: "a"}}, commands.Values{commands.NewSecret("x")}
	input.Spawn.Stdin, input.Values = true, commands.Values{commands.NewSecret("x")}
	for _, r := range []hub.SpawnRequest{file, input} {
		err := order(r)
		require.Equal(t, commands.Capability, commands.CodeOf(err))
		require.ErrorContains(t, err, "spoke attic takes no files and no standard input with an order")
		r.Spoke, r.Any = "", true
		err = order(r)
		require.Equal(t, commands.NoSpoke, commands.CodeOf(err))
		require.ErrorContains(t, err, "attic lacks inline-files")
	}

	_, err := rewrite(t, m.Spokes["attic"], rules+"inline_files: true\n")

	require.NoError(t, err)
	meshtest.Await(t, "the heartbeat", func() bool { return order(file) == nil })
	require.Equal(t, commands.Completed, m.Wait(t, m.Order(t, input)).State)
}

// An order that brings files, taken before its host took none any more, waits; its host is told why, by the
// spoke and where none runs, and what changes that.
func TestAHostIsToldWhyFilesKeepAnAgentWaiting(t *testing.T) {
	t.Parallel()
	const rules = "version: 1\nruntimes: [exec]\ncommands: [\"*\"]\n"
	m := meshtest.Plan{Policy: meshtest.Loose(rules + "inline_files: true\n"), Slots: 1}.Start(t, "attic")
	s := m.Spokes["attic"]
	busy := m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, busy, commands.Running)
	r := asks("cat", "a")
	r.Spawn.Files, r.Values = []commands.File{{Path: "a"}}, commands.Values{commands.NewSecret("x")}
	task := m.Order(t, r)
	meshtest.Await(t, "the order to be taken", func() bool { return m.Agent(t, task).AcceptedAt != nil })
	change, err := rewrite(t, s, rules)
	require.NoError(t, err)
	refusal := commands.WhyReason{Code: commands.CausePolicy, Text: "the policy, version " + change.Policy + ", refuses it: files and standard input of an order are not allowed on this spoke",
		Fix: "its host can allow them with inline_files: true in policy.yaml; after a change there: spawnmesh spoke policy reload"}
	why := func() (w backlog.Why) { s.Do(t, "GET", "/api/v1/tasks/"+task+"/why", nil, &w); return w }

	require.Contains(t, why().Reasons, refusal)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+busy+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, busy)
	meshtest.Await(t, "the slot", func() bool { return len(why().Reasons) == 1 })
	require.Equal(t, []commands.WhyReason{refusal}, why().Reasons, "and nothing else")
	require.False(t, why().Claimable)
	m.Stop(t, "attic")
	in := s.Visit(t)
	atRest, err := spoke.DeskOf(in.DB, s.Dir).Why(t.Context(), task, "uid:0", false)
	require.NoError(t, err)
	brief, err := spoke.DeskOf(in.DB, s.Dir).Why(t.Context(), task, "uid:0", true)
	require.NoError(t, err)
	require.NoError(t, in.Close(t.Context()))
	require.Contains(t, atRest.Reasons, refusal)
	require.NotContains(t, brief.Reasons, refusal, "the words of the policy may repeat the order")
	m.Start(t, "attic")

	_, err = rewrite(t, s, rules+"inline_files: true\n")

	require.NoError(t, err)
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
}

// A hub that asks for no capability, and for no permission, puts nothing into another place.
func TestFilesOfAHostileHub(t *testing.T) {
	t.Parallel()
	allowed, denied := meshtest.Plan{}.Rogue(t), meshtest.Plan{Policy: meshtest.Loose(strings.ReplaceAll(policy.Presets["open"], "inline_files: true", "inline_files: false"))}.Rogue(t)
	for _, tt := range []struct {
		name string
		hub  *meshtest.Rogue
		code commands.Code
		s    commands.Spawn
	}{
		{"out of the directory", allowed, commands.BadPath, commands.Spawn{Files: []commands.File{{Path: "../home/.profile"}}}},
		{"anywhere", allowed, commands.BadPath, commands.Spawn{Files: []commands.File{{Path: "/tmp/x"}}}},
		{"into a directory of the host", allowed, commands.Validation, commands.Spawn{Dir: "/tmp", Files: []commands.File{{Path: "x"}}}},
		{"where files are not allowed", denied, commands.Policy, commands.Spawn{Files: []commands.File{{Path: "x"}}}},
		{"where standard input is not allowed", denied, commands.Policy, commands.Spawn{Stdin: true}},
	} {
		s := tt.s
		s.Task, s.Runtime, s.Argv = meshtest.NewID(), commands.RuntimeExec, []string{"true"}
		order := tt.hub.Valued(t, &s, "content")

		tt.hub.Send(t, commands.QueueRun, order.Envelope)

		require.Equal(t, tt.code, tt.hub.Answer(t, order.ID, commands.RefusedKind).(*commands.RefusedBody).Code, tt.name)
	}
	s := commands.Spawn{Task: meshtest.NewID(), Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", "[ $(cat) = $(cat x) ]"}, Files: []commands.File{{Path: "x"}}, Stdin: true}
	order := allowed.Valued(t, &s, "content", "content")
	allowed.Send(t, commands.QueueRun, order.Envelope)
	require.Equal(t, commands.Completed, allowed.Answer(t, order.ID, commands.ResultKind).(*commands.Result).State, "what a spoke takes needs no word for it")
}
