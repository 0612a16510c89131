package runtime

import (
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// The variables that tell an agent who it is, where its door is, and what was kept for it.
const (
	TaskVariable       = "SPAWNMESH_TASK"
	AttemptVariable    = "SPAWNMESH_ATTEMPT"
	SocketVariable     = "SPAWNMESH_SOCKET"
	TokenVariable      = "SPAWNMESH_TOKEN_FILE"
	DeadlineVariable   = "SPAWNMESH_DEADLINE"
	CheckpointVariable = "SPAWNMESH_CHECKPOINT"
	SessionVariable    = "SPAWNMESH_SESSION"
	PromptVariable     = "SPAWNMESH_PROMPT_FILE"
	ReviewVariable     = "SPAWNMESH_REVIEW" // what has sent it back: of an attempt that goes on after a review
	ChangesVariable    = "SPAWNMESH_REVIEW_FILE"
	InputsVariable     = "SPAWNMESH_INPUTS"

	traceVariable = "TRACEPARENT"
)

// own are the variables that a spoke gives each agent, whatever a policy says, and when; "" = always. An agent is told by no other
// name.
var own = []struct{ name, when string }{
	{"HOME", ""}, {"LANG", ""}, {"PATH", ""}, {"TMPDIR", ""},
	{AttemptVariable, ""}, {supervisor.MarkerName, ""}, {SocketVariable, ""}, {TaskVariable, ""}, {TokenVariable, ""},
	{DeadlineVariable, "where its time is bounded"}, {CheckpointVariable, "where an attempt before has kept one"}, {SessionVariable, "where one has"},
	{ReviewVariable, "where a review has sent it back"}, {ChangesVariable, "there"}, {PromptVariable, "there and where its order has a prompt"},
	{InputsVariable, "where its order has files or inputs"},
	{traceVariable, "where its order belongs to a trace"},
}

// isID reports whether a name tells an agent something about itself. The marker is set where it is started.
func isID(name string) bool {
	return strings.HasPrefix(name, idPrefix) && name != supervisor.MarkerName && slices.ContainsFunc(own, func(v struct{ name, when string }) bool { return v.name == name })
}

// OwnVariables are the variables of every agent, in words.
func OwnVariables() string {
	var always, sometimes []string
	for _, v := range own {
		if v.when == "" {
			always = append(always, v.name)
		} else {
			sometimes = append(sometimes, v.name+" "+v.when)
		}
	}
	return strings.Join(always, ", ") + "; " + strings.Join(sometimes, ", ")
}
