package spoke_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
)

// An agent reads its prompt and what it was given in files that are named to it, outside of the directory that it works in, whoever it is. They are
// gone with its end.
func TestAnAgentIsToldItsTask(t *testing.T) {
	t.Parallel()
	levels := map[string]string{"as the host confines": "", "not confined": "isolation: none\nallow_root_agents: true\n"}
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := confined(t, level)
			s := m.Spokes["attic"]
			const prompt = "Say \"hi\", and\nno more: ümlaut.\n"
			task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Files: []commands.File{{Path: "in/data"}}, Stdin: true, Prompt: true,
				Argv: []string{"sh", "-c", `cat >stdin; cat "$SPAWNMESH_PROMPT_FILE" >prompt; cat "$SPAWNMESH_INPUTS" >inputs; stat -c '%a %u' "$SPAWNMESH_PROMPT_FILE" >mode; id -u >me; echo x >>"$SPAWNMESH_PROMPT_FILE"; true`}},
				Values: commands.Values{commands.NewSecret("data"), commands.NewSecret("input"), commands.NewSecret(prompt)}})

			v := m.Wait(t, task)

			require.Equal(t, commands.Completed, v.State, "%s %s", v.Result, v.Refusal)
			work := workOf(s, task, "1")
			require.Equal(t, prompt, contentOf(t, work, "prompt"))
			require.Equal(t, "input", contentOf(t, work, "stdin"))
			require.Equal(t, "400 "+contentOf(t, work, "me"), contentOf(t, work, "mode"))
			var given []commands.Given
			require.NoError(t, json.Unmarshal([]byte(contentOf(t, work, "inputs")), &given))
			require.Equal(t, []commands.Given{{Kind: commands.InputFile, Path: filepath.Join(work, "in", "data")}}, given)
			require.NoFileExists(t, filepath.Join(filepath.Dir(work), "door", "prompt"))
		})
	}
	m := confined(t, "")
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: shell(`echo "$SPAWNMESH_PROMPT_FILE$SPAWNMESH_INPUTS"`)})
	require.Equal(t, commands.Completed, m.Wait(t, task).State)
	require.Equal(t, "\n", m.Stdout(t, task, true), "nothing is named that there is not")
}

// After a review the prompt is the task with what is to be changed behind it, which is in a file of its own, too.
func TestAReviewStandsBehindThePrompt(t *testing.T) {
	t.Parallel()
	m := confined(t, "")
	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Prompt: true, Review: true,
		Argv: []string{"sh", "-c", `cat "$SPAWNMESH_PROMPT_FILE"; echo "|$SPAWNMESH_REVIEW|"; [ -z "$SPAWNMESH_REVIEW_FILE" ] || cat "$SPAWNMESH_REVIEW_FILE"`}},
		Values: commands.Values{commands.NewSecret("write it")}})
	m.Await(t, task, commands.InReview)
	says := func(want string) { // output goes its own way
		t.Helper()
		meshtest.Await(t, "the output "+want, func() bool { return m.Stdout(t, task, false) == want })
	}
	says("write it||\n")

	require.NoError(t, review(t, m, task, 1, commands.RequestChanges, "name it better"))

	meshtest.Await(t, "attempt 2 is in review", func() bool { v := m.Agent(t, task); return v.State == commands.InReview && v.Attempt == 2 })
	says("write it||\n" + commands.Rework("write it", "name it better") + "|changes|\nname it better")
	require.Regexp(t, `(?s)^write it\n.* is to be changed:\n\nname it better$`, commands.Rework("write it", "name it better"))
}
