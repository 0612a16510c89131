//go:build agents

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// A use is a tool that a model wants to have used.
type use struct {
	name string
	args map[string]any
}

// A model is one of tests on loopback: it has the tools used that it was given, one after the other, and says that it has done it.
type model struct {
	*httptest.Server
	uses []use

	mu    sync.Mutex
	asked []string // paths
}

func startModel(t *testing.T, uses ...use) *model {
	m := &model{uses: uses}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *model) port(t *testing.T) string {
	u, err := url.Parse(m.URL)
	require.NoError(t, err)
	return u.Port()
}

// ServeHTTP answers as the interfaces of OpenAI and of Gemini do, in streams.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	m.mu.Lock()
	m.asked = append(m.asked, r.URL.Path)
	m.mu.Unlock()
	event := func(format string, args ...any) { fmt.Fprintf(w, "data: "+format+"\n\n", args...) }
	w.Header().Set("Content-Type", "text/event-stream")
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		delta, why := m.openAI(raw)
		event(`{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%s,"finish_reason":null}]}`, delta)
		event(`{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":%q}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`, why)
		event("[DONE]")
	case strings.HasSuffix(r.URL.Path, ":streamGenerateContent"):
		event(`{"candidates":[{"index":0,"content":{"role":"model","parts":[%s]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15}}`, m.gemini(raw))
	default:
		http.Error(w, "this model does not know "+r.URL.Path, http.StatusNotFound)
	}
}

// next is the next use in a talk where so many were answered; nil = all are done.
func (m *model) next(answered int) *use {
	if answered >= len(m.uses) {
		return nil
	}
	return &m.uses[answered]
}

func (m *model) openAI(raw []byte) (delta, why string) {
	var q struct {
		Messages []struct{ Role string }
		Tools    []any
	}
	_ = json.Unmarshal(raw, &q)
	answered := 0
	for _, one := range q.Messages {
		if one.Role == "tool" {
			answered++
		}
	}
	next := m.next(answered)
	if len(q.Tools) == 0 || next == nil { // without tools it is to find a title
		return `{"role":"assistant","content":"It is mended."}`, "stop"
	}
	args, _ := json.Marshal(next.args)
	call, _ := json.Marshal(map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{"index": 0, "id": fmt.Sprint("call", answered), "type": "function",
		"function": map[string]any{"name": next.name, "arguments": string(args)}}}})
	return string(call), "tool_calls"
}

func (m *model) gemini(raw []byte) (parts string) {
	var q struct {
		Contents []struct{ Parts []map[string]any }
		Tools    []any
	}
	_ = json.Unmarshal(raw, &q)
	answered := 0
	for _, c := range q.Contents {
		for _, p := range c.Parts {
			if p["functionResponse"] != nil {
				answered++
			}
		}
	}
	next := m.next(answered)
	if len(q.Tools) == 0 || next == nil {
		return `{"text":"It is mended."}`
	}
	part, _ := json.Marshal(map[string]any{"functionCall": map[string]any{"name": next.name, "args": next.args}})
	return string(part)
}

// agentHost is a hub and a spoke whose agents may read a directory.
func agentHost(t *testing.T, dir, more string) (h, s hand) {
	mesh := startHub(t)
	withCluster(t, filepath.Join(mesh.Dir, "attic"))
	require.NoError(t, mesh.AddSpoke(t.Context(), "attic", policy.Presets["open"]+"read_paths: ["+dir+"]\n"+more, "--heartbeat", "1s"))
	return hand{t: t, dir: mesh.Hub.Dir}, hand{t: t, dir: mesh.Spokes["attic"].Dir}
}

// installedFor is a directory that agents may read, with what npm has installed there.
func installedFor(t *testing.T, packages ...string) string {
	dir, err := os.MkdirTemp("", "spawnmesh-agents-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, name := range packages {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(agentPackages(t), "node_modules", name), filepath.Join(dir, name)).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir
}

// works has an agent do its task in a repository, allows what it asks for, and fetches what it did.
func (m *model) works(t *testing.T, h, s hand, name, profile, settings string) {
	require.NoError(t, os.MkdirAll(policy.ProfileDir(s.dir), 0o700))
	require.NoError(t, os.WriteFile(policy.ProfileFile(s.dir, name), []byte(profile), 0o600))
	require.Contains(t, s.do("spoke", "policy", "reload"), "is in force")
	repo := aRepository(t)
	shellIn(t, repo, "git checkout -q a && rm n; mkdir -p .gemini; printf '%s' '"+settings+"' >.gemini/settings.json; git add .gemini; git commit -qm settings")
	ordered := h.run("write three into the file a", "spawn", "--spoke", "attic", "--isolation", "landlock", "--profile", name, "--with", repo, "--stdin", "-o", "name")
	require.Zero(t, ordered.code, ordered.err)
	id := strings.TrimSpace(ordered.out)
	personSays(m.option(t, h, id))(t, h, id, "")
	v := h.ends(id)
	out := h.do("logs", "-f", id)
	require.Equal(t, commands.Completed, v.State, "%s\n%s\nthe model was asked %v", v.Sentence(), out, m.asked)
	require.Contains(t, h.do("result", id), "It is mended.")

	h.do("fetch", id, "--into", repo, "--wait")

	require.Equal(t, "three", shellIn(t, repo, "git show spawnmesh/"+id+":a"), "%s", out)
	require.Equal(t, "by the agent", shellIn(t, repo, "git log --format=%s HEAD..spawnmesh/"+id))
	require.Equal(t, "one", shellIn(t, repo, "cat a"))
	t.Logf("%s\n%s", h.do("status", id), out)
}

// option is that of a question which allows once what the agent wants to do.
func (m *model) option(t *testing.T, h hand, id string) (option string) {
	v := h.until(id, func(v hub.AgentView) bool { return v.State == commands.AwaitingInput || v.State.Terminal() })
	if v.State.Terminal() {
		require.Fail(t, "it has ended without a question", "%s\n%v\nthe model was asked %v", v.Sentence(), h.run("", "logs", "-f", id), m.asked)
	}
	var list []api.Question
	h.read(&list, 0, "inbox")
	require.Len(t, list, 1)
	require.Regexp(t, `(?s)may the agent do this\? execute: git .*commit`, list[0].Text)
	for _, o := range list[0].Options {
		if regexp.MustCompile(`(?i)^allow( once)?$`).MatchString(o) {
			return o
		}
	}
	require.Fail(t, "no option allows it once", "%v", list[0].Options)
	return ""
}

const committed = `git -c user.name=x -c user.email=x@example.org commit -qam "by the agent"`

// opencode does a task: reads, edits, is allowed by a person to commit, and what it has done comes back.
func TestARealCodingAgentOpencode(t *testing.T) {
	require.Equal(t, "amd64", runtime.GOARCH, "package.json names the program of opencode for x64; name the one of this machine there")
	m := startModel(t, use{"read", map[string]any{"filePath": "a"}}, use{"edit", map[string]any{"filePath": "a", "oldString": "one", "newString": "three"}},
		use{"bash", map[string]any{"command": committed, "description": "commit it"}})
	dir := installedFor(t, "opencode-linux-x64")
	require.NoError(t, os.MkdirAll(dir+"/config/opencode", 0o755))
	require.NoError(t, os.WriteFile(dir+"/config/opencode/opencode.json", []byte(`{"model": "test/m", "small_model": "test/m", "autoupdate": false, "share": "disabled", "enabled_providers": ["test"], "permission": {"edit": "ask", "bash": "ask"},
"provider": {"test": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "`+m.URL+`/v1", "apiKey": "none"}, "models": {"m": {"limit": {"context": 100000, "output": 8000}}}}}}`), 0o644))
	h, s := agentHost(t, dir, "") // it has a server on loopback, which it connects to itself

	m.works(t, h, s, "opencode", `runtime: acp
command: [`+dir+`/opencode-linux-x64/bin/opencode, acp]
allow: [read, search, think, edit]
env: {XDG_CONFIG_HOME: `+dir+`/config, OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_LSP_DOWNLOAD: "1", OPENCODE_DISABLE_DEFAULT_PLUGINS: "1", OPENCODE_SERVER_PASSWORD: of-tests}
`, `{}`)
}

// Gemini CLI does the same.
func TestARealCodingAgentGemini(t *testing.T) {
	m := startModel(t, use{"read_file", map[string]any{"file_path": "a"}}, use{"replace", map[string]any{"file_path": "a", "old_string": "one", "new_string": "three", "instruction": "write three"}},
		use{"run_shell_command", map[string]any{"command": committed, "description": "commit it"}})
	dir := installedFor(t, "@google/gemini-cli")
	h, s := agentHost(t, dir, "connect_ports: ["+m.port(t)+"]\n")

	m.works(t, h, s, "gemini", `runtime: acp
command: [node, `+dir+`/@google/gemini-cli/bundle/gemini.js, --acp, --model, gemini-2.5-flash]
allow: [read, search, think, edit]
env: {GEMINI_API_KEY: none, GOOGLE_GEMINI_BASE_URL: "`+m.URL+`", GEMINI_CLI_TRUST_WORKSPACE: "true"}
`, `{"general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false}, "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false}, "security": {"auth": {"selectedType": "gemini-api-key"}}, "tools": {"useRipgrep": false}}`)
}
