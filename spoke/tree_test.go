package spoke_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/git"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// operator is a repository of somebody who orders work on it.
type operator struct {
	t   *testing.T
	git *git.Git
	dir string
}

func newOperator(t *testing.T) operator {
	t.Helper()
	g, err := git.Find(t.Context())
	require.NoError(t, err)
	o := operator{t, g.Operator(), t.TempDir()}
	o.sh(`git init -q -b main . && git config user.name op && git config user.email op@example.org && printf 'one\n' >a && mkdir d && printf 'two\n' >d/b && printf '*.o\n' >.gitignore && git add -A && git commit -qm first`)
	return o
}

func (o operator) sh(script string) string {
	o.t.Helper()
	c := exec.CommandContext(o.t.Context(), "sh", "-ec", script)
	c.Dir = o.dir
	out, err := c.CombinedOutput()
	require.NoError(o.t, err, "%s", out)
	return string(out)
}

// input is the working tree as it is now, held by the hub.
func (o operator) input(m *meshtest.Mesh) commands.Input {
	o.t.Helper()
	var bundle bytes.Buffer
	in, err := o.git.BundleTree(o.t.Context(), o.dir, "", true, &bundle)
	require.NoError(o.t, err)
	sent, err := control.Answer(control.NewClient(m.Hub.Dir).API().PutBlobWithBodyWithResponse(o.t.Context(), "application/octet-stream", &bundle))
	require.NoError(o.t, err)
	return commands.Input{Kind: commands.InputGit, Blob: commands.Blob{Digest: sent.Digest, Size: sent.Size}, Tip: in.Tip, Origin: in.Origin}
}

// takes imports what an agent has left, once it is at the hub.
func (o operator) takes(m *meshtest.Mesh, task string) *commands.Bundle {
	o.t.Helper()
	r, ok := commands.ReadResult(m.Agent(o.t, task).Result)
	require.True(o.t, ok)
	require.NotNil(o.t, r.Bundle, "%+v", r)
	meshtest.Await(o.t, "what the agent has left is at the hub", func() bool {
		got, err := control.NewClient(m.Hub.Dir).API().GetTaskWorkWithResponse(o.t.Context(), task)
		if err != nil {
			require.Equal(o.t, commands.NoResult, commands.CodeOf(err), "%v", err)
			return false
		}
		done, err := o.git.Import(o.t.Context(), o.dir, git.Work{Bundle: bytes.NewReader(got.Body), Most: r.Bundle.Size, Branch: git.Branches + task, Base: r.Bundle.Base, Tip: r.Bundle.Tip})
		require.NoError(o.t, err)
		require.Equal(o.t, r.Bundle.Tip, done.Tip)
		return true
	})
	return r.Bundle
}

// What an operator has not committed goes to the agent, and what the agent has committed and left comes back, as branch of its own.
func TestWorkGoesThereAndComesBack(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.sh(`printf 'changed\n' >a; printf 'new\n' >n`)
	m := confined(t, "")
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Inputs: []commands.Input{o.input(m)},
		Argv: []string{"sh", "-ec", `git status --porcelain; git branch --show-current; cat a n d/b; printf 'by the agent\n' >>a; git commit -qam 'the change of the agent'; printf 'left\n' >left; printf 'x\n' >x.o; rm d/b`}}})

	v := m.Wait(t, task)

	require.Equal(t, commands.Completed, v.State, "%s", v.Result)
	require.Equal(t, "spawnmesh/"+task+"\nchanged\nnew\ntwo\n", m.Stdout(t, task, true), "nothing is changed in its tree")
	b := o.takes(m, task)
	require.Equal(t, strings.TrimSpace(o.sh(`git rev-parse main`)), b.Base)
	require.Equal(t, 3, b.Commits)
	require.True(t, b.Left)
	require.Equal(t, "spawnmesh: left by attempt 1\nthe change of the agent\n", o.sh(`git log --format=%s -2 spawnmesh/`+task))
	require.Equal(t, "changed\nby the agent\nnew\nleft\n", o.sh(`for f in a n left; do git show spawnmesh/`+task+`:$f; done`))
	require.NotContains(t, o.sh(`git ls-tree -r --name-only spawnmesh/`+task), "d/b")
	require.NotContains(t, o.sh(`git ls-tree -r --name-only spawnmesh/`+task), "x.o")
	require.Equal(t, "changed\n", o.sh(`cat a`), "the operator's own files stay as they are")
	m.Check(t)
}

// A spoke that has its work shown against another commit than that of the order is refused, by the hub and by who reads the result.
func TestWorkOnAnotherCommitIsRefused(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	m := confined(t, "")
	in := o.input(m)
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Inputs: []commands.Input{in}, Argv: []string{"sh", "-ec", `echo x >x`}}})
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	o.takes(m, task)

	m.Hub.Exec(t, `UPDATE mirrors SET result = jsonb_set(result, '{bundle,base}', to_jsonb($2::text)) WHERE task = $1`, task, strings.Repeat("1", 40))

	client := control.NewClient(m.Hub.Dir).API()
	said, err := control.Answer(client.GetTaskResultWithResponse(t.Context(), task))
	require.NoError(t, err)
	require.Equal(t, in.Origin, said.Origin, "who reads it is told what the order says")
	require.NotEqual(t, said.Origin, said.Bundle.Base)
	_, err = client.GetTaskWorkWithResponse(t.Context(), task)
	require.Equal(t, commands.Conflict, commands.CodeOf(err), "%v", err)
}

// An attempt goes on with what the one before it has left, and is told apart from it.
func TestAnAttemptGoesOnWithWhatIsLeft(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	m := confined(t, "")
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, MaxRetries: 1, BackoffMS: 1, Inputs: []commands.Input{o.input(m)},
		Argv: []string{"sh", "-ec", `if [ -e mine ]; then git log --format=%s -1; echo second >>mine; else echo first >mine; exit 3; fi`}}})

	require.Equal(t, commands.Completed, m.Wait(t, task).State)

	require.Contains(t, m.Stdout(t, task, true), "spawnmesh: left by attempt 1")
	o.takes(m, task)
	require.Equal(t, "first\nsecond\n", o.sh(`git show spawnmesh/`+task+`:mine`))
	require.Equal(t, "spawnmesh: left by attempt 2\nspawnmesh: left by attempt 1\n", o.sh(`git log --format=%s -2 spawnmesh/`+task))
}

// A task that is killed before its next attempt tells what the one before has left, and that comes back.
func TestWhatIsLeftBeforeABackOffComesBack(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	m := confined(t, "")
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, MaxRetries: 1, BackoffMS: commands.MaxBackoff.Milliseconds(), Inputs: []commands.Input{o.input(m)},
		Argv: []string{"sh", "-ec", `echo first >mine; exit 3`}}})
	meshtest.Await(t, "its back-off", func() bool { return m.Spokes["attic"].Count(t, `SELECT count(*) FROM due WHERE task = $1`, task) == 1 })

	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough"}, nil)

	require.Equal(t, commands.Cancelled, m.Wait(t, task).State)
	o.takes(m, task)
	require.Equal(t, "first\n", o.sh(`git show spawnmesh/`+task+`:mine`))
}

// An agent that is killed, or that has spoilt what git keeps, leaves its files all the same, and nothing that it has planted is run out of its cage.
func TestWhatAKilledAgentLeaves(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	m := confined(t, "")
	canary := filepath.Join(m.Spokes["attic"].Dir, "canary")
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Inputs: []commands.Input{o.input(m)},
		Argv: []string{"sh", "-ec", `echo half >half; git config core.fsmonitor "touch $0"; git config core.hooksPath "$PWD/hooks"; mkdir hooks; printf '#!/bin/sh\ntouch "%s"\n' "$0" >hooks/post-checkout; chmod +x hooks/*; echo ref: refs/heads/none >.git/HEAD; sleep 600`, canary}}})
	require.Eventually(t, func() bool {
		head, _ := os.ReadFile(filepath.Join(m.Spokes["attic"].Dir, "agents", task, "1", "work", ".git", "HEAD"))
		return string(head) == "ref: refs/heads/none\n"
	}, meshtest.Patience, 20*time.Millisecond)
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough"}, nil)

	require.Equal(t, commands.Cancelled, m.Wait(t, task).State)

	o.takes(m, task)
	require.Equal(t, "half\n", o.sh(`git show spawnmesh/`+task+`:half`))
	_, err := os.Lstat(canary)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A working tree stays until its hub holds all that is in it, however old it is; one with something that cannot come back stays.
func TestAWorkingTreeStaysUntilItsHubHoldsIt(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	m := confined(t, "")
	s := m.Spokes["attic"]
	order := func(script string) string {
		return m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Inputs: []commands.Input{o.input(m)}, Argv: []string{"sh", "-ec", script}}})
	}
	brought, with, branch, nothing := order("echo x >x"), order(`echo x >x; mkfifo "$(printf 'pi\npe')"`), order("git branch mine; echo x >x"), order("echo x >x.o")
	for _, task := range []string{brought, with, branch, nothing} {
		require.Equal(t, commands.Completed, m.Wait(t, task).State)
	}
	for _, task := range []string{brought, with, branch} {
		o.takes(m, task)
	}
	kept := func(task string) string {
		r, _ := commands.ReadResult(m.Agent(t, task).Result)
		return r.Kept
	}
	require.Empty(t, kept(brought))
	require.Equal(t, "special: 1; the first is pi pe", kept(with))
	require.Equal(t, "branches, tags and stashes of its own: 1", kept(branch))
	require.Empty(t, kept(nothing))
	meshtest.Await(t, "the spoke knows that it is held", func() bool {
		return s.Count(t, `SELECT count(*) FROM blob_uses WHERE brought = 'held'`) == 3
	})
	s.Exec(t, `UPDATE blob_uses SET brought = 'due' WHERE task = $1`, brought) // as if its hub had not said so
	m.Stop(t, "attic")
	old := time.Now().Add(-30 * 24 * time.Hour)
	for _, task := range []string{brought, with, branch, nothing} {
		require.NoError(t, os.Chtimes(filepath.Join(s.Dir, "agents", task, "1", "control"), old, old))
	}
	m.Start(t, "attic")
	there := func(task string) bool { _, err := os.Lstat(filepath.Join(s.Dir, "agents", task)); return err == nil }

	meshtest.Await(t, "what has left nothing is gone", func() bool { return !there(nothing) })

	require.Equal(t, []bool{true, true}, []bool{there(with), there(branch)})
	meshtest.Await(t, "its repository, too", func() bool { _, err := os.Lstat(filepath.Join(s.Dir, "repos", nothing)); return err != nil })
	require.DirExists(t, filepath.Join(s.Dir, "repos", with))
}

// A start that is cut short while the working tree is made leaves nothing: what is there is no work of an agent.
func TestAStartThatWasCutShortLeavesNothing(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	m := confined(t, "")
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Inputs: []commands.Input{o.input(m)}, Argv: []string{"./none"}}})

	v := m.Wait(t, task)

	require.Equal(t, commands.Unavailable, v.State)
	r, _ := commands.ReadResult(v.Result)
	require.Nil(t, r.Bundle)
	require.Empty(t, r.Kept)
}

// A kill ends the collection of what an agent has left, however long that would take, and so does the end of this process: the next one does
// it again. The end that a kill has brought tells that the tree is kept.
func TestACollectionIsKilled(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	m := confined(t, "")
	s := m.Spokes["attic"]
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Inputs: []commands.Input{o.input(m)}, Argv: []string{"sh", "-ec", "echo x >x; truncate -s 60G sparse"}}})
	collects := func() bool {
		drafts, err := filepath.Glob(filepath.Join(s.Dir, "repos", task, "objects", git.Drafts+"*", "left"))
		return err == nil && len(drafts) == 1
	}
	meshtest.Await(t, "the collection", collects)
	began := time.Now()
	m.Stop(t, "attic")
	require.Less(t, time.Since(began), 20*time.Second, "it does not wait for the collection")
	m.Start(t, "attic")
	meshtest.Await(t, "the collection, once more", collects)

	m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough"}, nil)

	v := m.Wait(t, task)
	require.Equal(t, commands.Cancelled, v.State, "%s", v.Result)
	r, ok := commands.ReadResult(v.Result)
	require.True(t, ok)
	require.Nil(t, r.Bundle)
	require.Equal(t, "all of it: it could not be collected: the agent was killed while it was collected", r.Kept)
	require.FileExists(t, filepath.Join(s.Dir, "agents", task, "1", "work", "x"))
}

// Where an agent has left another commit checked out than its branch, that one is taken; what its branch has beyond it is told, and stays.
func TestCommitsBesideWhatIsCheckedOut(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	m := confined(t, "")
	order := func(script string) string {
		return m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Inputs: []commands.Input{o.input(m)}, Argv: []string{"sh", "-ec", script}}})
	}
	detached := order(`git checkout -q --detach; echo x >x; git add x; git commit -qm mine`)
	behind := order(`echo x >x; git add x; git commit -qm mine; git checkout -q --detach HEAD~1; echo y >y`)
	back := order(`git reset -q --hard HEAD~1 2>/dev/null || true; echo y >y`)
	for task, kept := range map[string]string{detached: "", behind: "branches, tags and stashes of its own: 1", back: ""} {
		v := m.Wait(t, task)
		require.Equal(t, commands.Completed, v.State, "%s", v.Result)
		r, ok := commands.ReadResult(v.Result)
		require.True(t, ok)
		require.Equal(t, kept, r.Kept)
		o.takes(m, task)
	}
	require.Equal(t, "mine\n", o.sh(`git log --format=%s -1 spawnmesh/`+detached))
	require.Equal(t, "spawnmesh: left by attempt 1\n", o.sh(`git log --format=%s -1 spawnmesh/`+behind))
}
