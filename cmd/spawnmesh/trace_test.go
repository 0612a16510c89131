package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// A toldSpan is what a collector needs of a span.
type toldSpan struct {
	TraceID, SpanID, ParentSpanID, Name string
	Start                               string `json:"startTimeUnixNano"`
	Attributes                          []struct {
		Key   string
		Value struct{ StringValue string }
	}
	Status struct{ Message string }
}

func (s toldSpan) about(name string) string {
	for _, a := range s.Attributes {
		if a.Key == "spawnmesh."+name {
			return a.Value.StringValue
		}
	}
	return ""
}

// A collector keeps spans that it is told.
type collector struct {
	*httptest.Server
	mu   sync.Mutex
	told []toldSpan
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var request struct {
			ResourceSpans []struct {
				ScopeSpans []struct{ Spans []toldSpan }
			}
		}
		if json.NewDecoder(r.Body).Decode(&request) != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.told = append(c.told, request.ResourceSpans[0].ScopeSpans[0].Spans...)
	}))
	t.Cleanup(c.Close)
	return c
}

// await waits for the spans of a task, by name.
func (c *collector) await(t *testing.T, task string, n int) map[string]toldSpan {
	var found map[string]toldSpan
	require.NoError(t, fleet.Poll(t.Context(), 30*time.Second, "waiting for spans", func() (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		found = map[string]toldSpan{}
		for _, s := range c.told {
			if s.about("task") == task {
				require.NotContains(t, found, s.Name, "told twice")
				found[s.Name] = s
			}
		}
		return len(found) == n, nil
	}))
	return found
}

// A trace that somebody has begun goes on in the order, over the spoke to the agent, and to its end,
// which another process of the spoke sees. An order that is repeated in another trace is the same one.
func TestATraceGoesFromTheOrderToTheAgent(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	m := startHub(t, "--trace-endpoint", c.URL)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s", "--drain", "0s", "--trace-endpoint", c.URL))
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	h := hand{t: t, dir: m.Hub.Dir, env: []string{"TRACEPARENT=00-" + trace + "-" + span + "-01"}}
	g, task := newGate(t), newID()
	line := []string{"--spoke", "attic", "--id", task, "--", "sh", "-c", `echo "$TRACEPARENT"; ` + g.wait() + `; exit 3`}
	h.spawn(line...)
	h.runs(task)
	again := hand{t: t, dir: h.dir}
	require.Contains(t, again.run("", append([]string{"spawn"}, line...)...).err, "nothing new was ordered")

	c.await(t, task, 3)
	m.Spokes["attic"].Kill()
	require.NoError(t, m.Spokes["attic"].Start(t.Context()))
	g.open(t)
	require.Equal(t, commands.Failed, h.ends(task).State)

	spans := c.await(t, task, 4)
	for name, parent := range map[string]string{"order": span, "take": spans["order"].SpanID, "start": spans["order"].SpanID, "run": spans["order"].SpanID} {
		require.Equal(t, trace, spans[name].TraceID, name)
		require.Equal(t, parent, spans[name].ParentSpanID, name)
	}
	require.Equal(t, "attic", spans["order"].about("spoke"))
	require.Equal(t, "failed", spans["run"].Status.Message)
	require.Equal(t, "failed", spans["run"].about("outcome"))
	require.Equal(t, "1", spans["run"].about("attempt"))
	require.Less(t, spans["order"].Start, spans["run"].Start)
	require.Equal(t, "00-"+trace+"-"+spans["run"].SpanID+"-01", strings.TrimSpace(h.do("logs", "-f", task)), "the agent goes on from there")
	h.refused(exitMisuse, "--trace-endpoint: traces go to other machines by https only", "hub", "run", "--trace-endpoint", "http://collector.example.org")
}

// Without a collector nobody is told, and what others have begun reaches the agent.
func TestATraceOfOthersIsPassedOn(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	h := hand{t: t, dir: m.Hub.Dir}
	for trace, want := range map[string]string{given: "0af7651916cd43dd8448eb211c80319c", "": "none", "rubbish": "none"} {
		h.env = []string{"TRACEPARENT=" + trace}
		id := h.spawn("--spoke", "attic", "--", "sh", "-c", `echo "${TRACEPARENT-none}"`)
		h.ends(id)
		require.Contains(t, h.do("logs", "-f", id), want)
	}
	h.env = []string{"TRACEPARENT=" + given}
	id := h.spawn("--spoke", "attic", "--env", "TRACEPARENT=mine", "--", "sh", "-c", `echo "$TRACEPARENT"`)
	h.ends(id)
	require.Equal(t, "mine\n", h.do("logs", "-f", id))
}
