package spoke_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/internal/meshtest"
	"github.com/spawnmesh/spawnmesh/internal/shortpath"
	"github.com/spawnmesh/spawnmesh/spoke/door"
)

// doorOf asks the spoke in the name of a running agent.
func doorOf(s *meshtest.Spoke, task string, attempt int) *door.Client {
	dir := filepath.Join(s.Dir, "agents", task, fmt.Sprint(attempt), "door")
	return &door.Client{Socket: filepath.Join(dir, door.Socket), TokenFile: filepath.Join(dir, door.Token), Patience: 20 * time.Second}
}

// waiting orders an agent that runs until it is killed.
func waiting(t *testing.T, m *meshtest.Mesh) (task string) {
	t.Helper()
	task = m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, task, commands.Running)
	return task
}

// knock asks a door for something by hand.
func knock(t *testing.T, c *door.Client, token, method, path, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://spoke"+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialDoor(ctx, c) }}}
	resp, err := h.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}

func dialDoor(ctx context.Context, c *door.Client) (net.Conn, error) {
	name, done, err := shortpath.Of(c.Socket)
	if err != nil {
		return nil, err
	}
	defer done()
	return new(net.Dialer).DialContext(ctx, "unix", name)
}

// Where agents have the user of their spoke one of them takes no place at the door of another.
func TestAnAgentTakesNoPlaceAtAnothersDoor(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	other := waiting(t, m)
	ask := `import os, socket, sys
def answered(path):
    s = socket.socket(socket.AF_UNIX); os.chdir(os.path.dirname(path))
    try:
        s.connect("socket"); s.send(b"GET /v1/attempt HTTP/1.1\r\nHost: spoke\r\nConnection: close\r\n\r\n"); return len(s.recv(1))
    except OSError: return 0
print(sum(answered(sys.argv[1]) for _ in range(40)), answered(os.environ["SPAWNMESH_SOCKET"]))`

	task := m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"python3", "-c", ask, doorOf(s, other, 1).Socket}}})

	require.Equal(t, commands.Completed, m.Wait(t, task).State, "%s", m.Stdout(t, task, true))
	require.Equal(t, "0 1\n", m.Stdout(t, task, true))
}

// An agent of each level of isolation that this host holds gets to its spoke, and to no other agent's door.
func TestAConfinedAgentTalksToItsSpoke(t *testing.T) {
	t.Parallel()
	m := confined(t, "connect_ports: []\n")
	s := m.Spokes["attic"]
	other := waiting(t, m)
	ask := `import http.client, os, socket, sys
def ask(path, token):
    c = http.client.HTTPConnection("spoke"); c.sock = socket.socket(socket.AF_UNIX)
    os.chdir(os.path.dirname(path)); c.sock.connect(os.path.basename(path))
    c.request("POST", "/v1/progress", '{"step": "here"}', {"Authorization": "Bearer " + token, "Content-Type": "application/json"}); print(c.getresponse().status)
token = open(os.environ["SPAWNMESH_TOKEN_FILE"]).read().strip()
ask(os.environ["SPAWNMESH_SOCKET"], token)
for act in (lambda: ask(sys.argv[1] + "/socket", token), lambda: open(sys.argv[1] + "/token"), lambda: os.remove(os.environ["SPAWNMESH_SOCKET"])):
    try: act(); print("done")
    except OSError: print("no")`
	one, strongest := levels()
	demands := [][]string{commands.IsolationCapabilities(one), commands.IsolationCapabilities(strongest)}
	if _, err := exec.LookPath("bwrap"); err == nil {
		demands = append(demands, commands.IsolationCapabilities(commands.IsolationBubble))
	}
	for _, demand := range demands {
		order := hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Capabilities: demand,
			Argv: []string{"python3", "-c", ask, filepath.Dir(doorOf(s, other, 1).Socket)}}}

		task := m.Order(t, order)

		require.Equal(t, commands.Completed, m.Wait(t, task).State, "%v: %s", demand, m.Stdout(t, task, true))
		require.Equal(t, "200\nno\nno\nno\n", m.Stdout(t, task, true), demand)
		require.NoDirExists(t, filepath.Dir(doorOf(s, task, 1).Socket), "nothing of it stays")
	}
}

// Who does not have the token of an attempt may say nothing; who has it gets strict answers.
func TestADoorTakesItsTokenAndWhatIsDescribed(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task, other := waiting(t, m), waiting(t, m)
	c := doorOf(s, task, 1)
	raw, err := os.ReadFile(c.TokenFile)
	require.NoError(t, err)
	token := strings.TrimSpace(string(raw))
	foreign, err := os.ReadFile(doorOf(s, other, 1).TokenFile)
	require.NoError(t, err)
	for name, x := range map[string]struct {
		token, method, path, body string
		status                    int
		says                      string
	}{
		"nothing":           {"", "GET", "/v1/attempt", "", 401, "UNAUTHENTICATED"},
		"another agent's":   {strings.TrimSpace(string(foreign)), "POST", "/v1/progress", `{"step":"x"}`, 401, "SPAWNMESH_TOKEN_FILE"},
		"its own":           {token, "GET", "/v1/attempt", "", 200, task},
		"a field too many":  {token, "POST", "/v1/progress", `{"step":"x","more":1}`, 400, "VALIDATION"},
		"two values":        {token, "POST", "/v1/progress", `{"step":"x"}{}`, 400, "VALIDATION"},
		"a brace too many":  {token, "POST", "/v1/progress", `{"step":"x"}}`, 400, "VALIDATION"},
		"no progress":       {token, "POST", "/v1/progress", `{}`, 400, "says nothing"},
		"a long step":       {token, "POST", "/v1/progress", `{"step":"` + strings.Repeat("x", 300) + `"}`, 400, "limit 256"},
		"control":           {token, "POST", "/v1/progress", `{"step":"a\u001b[2J"}`, 400, "control characters"},
		"below nothing":     {token, "POST", "/v1/progress", `{"current":-1}`, 400, "outside 0"},
		"no such path":      {token, "POST", "/v1/spawn", `{}`, 404, "NOT_FOUND"},
		"larger than it is": {token, "POST", "/v1/progress", `{"step":"` + strings.Repeat("x", 300<<10) + `"}`, 413, "PAYLOAD_TOO_LARGE"},
	} {
		status, answer := knock(t, c, x.token, x.method, x.path, x.body)
		require.Equal(t, x.status, status, "%s: %s", name, answer)
		require.Contains(t, answer, x.says, name)
	}
	info, err := os.Stat(c.Socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(c.TokenFile)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NotContains(t, s.Log.String(), token)
}

// What an agent says goes to its hub, the newest is kept, and nothing is said for an attempt that is being ended.
func TestAnAgentSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task := waiting(t, m)
	c := doorOf(s, task, 1)
	for i := range int64(130) {
		total := int64(200)
		require.NoError(t, c.Do(t.Context(), "POST", "/v1/progress", commands.Progress{Current: &i, Total: &total, Unit: "files", Step: "step " + strings.Repeat("é", 60)}, nil))
	}
	require.Equal(t, 100, s.Count(t, `SELECT count(*) FROM progress WHERE task = $1`, task))
	require.Equal(t, 31, s.Count(t, `SELECT min(n) FROM progress WHERE task = $1`, task))
	require.Equal(t, 129, s.Count(t, `SELECT (progress->>'current')::int FROM leases WHERE task = $1 AND progress_at IS NOT NULL`, task))
	require.Eventually(t, func() bool {
		return m.Hub.Count(t, `SELECT count(*) FROM heartbeats, jsonb_array_elements(body->'agents') AS a WHERE a->>'task' = $1 AND a->'progress'->>'current' = '129'`, task) == 1
	}, meshtest.Patience, 50*time.Millisecond)

	m.Stop(t, "attic")
	require.Equal(t, commands.Unreachable, commands.CodeOf((&door.Client{Socket: c.Socket, TokenFile: c.TokenFile, Patience: 200 * time.Millisecond}).Do(t.Context(), "POST", "/v1/heartbeat", nil, nil)))
	said := make(chan error, 1)
	go func() { said <- c.Do(t.Context(), "POST", "/v1/heartbeat", nil, nil) }()
	m.Start(t, "attic")
	require.NoError(t, <-said, "it asks again until the spoke is back, by the same token")

	s.Exec(t, `UPDATE leases SET epoch = epoch + 1, reason = 'kill_requested' WHERE task = $1`, task)
	err := c.Do(t.Context(), "POST", "/v1/progress", commands.Progress{Step: "late"}, nil)
	require.Equal(t, commands.StaleAttempt, commands.CodeOf(err))
	require.ErrorContains(t, err, "it is being ended (kill_requested); nothing was changed")
	require.Equal(t, 0, s.Count(t, `SELECT count(*) FROM progress WHERE said->>'step' = 'late'`))
}

// An agent that floods its door, opens more connections than it may, or sends without end harms nobody else.
func TestAHostileAgentHarmsItsOwnDoorAlone(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	task, other := waiting(t, m), waiting(t, m)
	c := doorOf(s, task, 1)
	var conns []net.Conn
	closed := 0
	for range 1000 {
		conn, err := dialDoor(t.Context(), c)
		if err != nil { // its line is full
			closed++
			continue
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		if _, err := conn.Read(make([]byte, 1)); err == io.EOF {
			closed++
		}
	}
	require.GreaterOrEqual(t, closed, 1000-66, "32 have a place, and 33 stand in the line")
	require.NoError(t, doorOf(s, other, 1).Do(t.Context(), "POST", "/v1/heartbeat", nil, nil), "another one is heard")
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	// What is in the place of its socket is its own loss.
	require.NoError(t, os.Remove(c.Socket))
	require.NoError(t, os.Symlink("/etc/passwd", c.Socket))
	require.NoError(t, os.Remove(c.TokenFile))
	require.NoError(t, os.Symlink("/etc/passwd", c.TokenFile))
	before, err := os.ReadFile("/etc/passwd")
	require.NoError(t, err)
	m.Stop(t, "attic")
	m.Start(t, "attic")
	require.NoError(t, c.Do(t.Context(), "POST", "/v1/heartbeat", nil, nil), "a spoke that adopts it makes both anew")
	after, err := os.ReadFile("/etc/passwd")
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
	require.NoError(t, doorOf(s, other, 1).Do(t.Context(), "POST", "/v1/heartbeat", nil, nil))
}

// Who does not read an answer does not keep what it holds: the next one gets its turn. And a door does not wait for him to close.
func TestAnAnswerThatNobodyReadsIsGivenUp(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	task := waiting(t, m)
	c := doorOf(m.Spokes["attic"], task, 1)
	for i := range 40 {
		inquire(t, c, door.Ask{Key: fmt.Sprint(i), Text: "which?", Data: strings.Repeat("x", commands.MaxQuestionData)})
	}
	token, err := os.ReadFile(c.TokenFile)
	require.NoError(t, err)
	slow := func() {
		conn, err := dialDoor(t.Context(), c)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "GET /v1/attempt HTTP/1.1\r\nHost: spoke\r\nAuthorization: Bearer %s\r\n\r\n", strings.TrimSpace(string(token)))
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1)) // the answer has begun, and is larger than what the kernel keeps
		require.NoError(t, err)
	}
	slow()
	slow()
	ctx, done := context.WithTimeout(t.Context(), meshtest.Patience)
	defer done()
	require.NoError(t, c.Do(ctx, "GET", "/v1/attempt", nil, nil))

	slow()
	slow()
	began := time.Now()
	m.Stop(t, "attic")
	require.Less(t, time.Since(began), meshtest.Patience)
}

// A door is that of one attempt, while it holds its task: who comes later says nothing.
func TestADoorEndsWithItsAttempt(t *testing.T) {
	t.Parallel()
	m := meshtest.Start(t, "attic")
	s := m.Spokes["attic"]
	lost, ended := waiting(t, m), waiting(t, m)
	one := int64(1)
	said := commands.Progress{Current: &one}

	s.Exec(t, `UPDATE leases SET epoch = epoch + 1 WHERE task = $1`, lost)
	require.Equal(t, commands.StaleAttempt, commands.CodeOf(doorOf(s, lost, 1).Do(t.Context(), "POST", "/v1/progress", said, nil)))

	c := doorOf(s, ended, 1)
	c.Patience = time.Second
	require.NoError(t, c.Do(t.Context(), "POST", "/v1/progress", said, nil))
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+ended+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, ended)
	require.Error(t, c.Do(t.Context(), "POST", "/v1/progress", said, nil))
	require.NoFileExists(t, c.Socket)
	require.Equal(t, 1, s.Count(t, `SELECT count(*) FROM progress WHERE task = $1`, ended))
}
