package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
	"github.com/spawnmesh/spawnmesh/store"
)

// An example is docs/examples/webhook/receiver.go, as it is described.
type example struct {
	bin, address, cert, key, out string
	cmd                          *exec.Cmd
}

func newExample(t *testing.T) *example {
	t.Helper()
	dir := t.TempDir()
	e := &example{bin: filepath.Join(dir, "receiver"), out: filepath.Join(dir, "out")}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", e.bin, "../../docs/examples/webhook/receiver.go").CombinedOutput()
	require.NoError(t, err, "%s", out)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	e.address = l.Addr().String()
	require.NoError(t, l.Close())
	e.cert, e.key = certify(t, time.Now().Add(time.Hour))
	t.Cleanup(func() { e.end() })
	return e
}

// start has it verify by a key.
func (e *example) start(t *testing.T, public string) {
	t.Helper()
	e.cmd = exec.Command(e.bin, public, e.address, e.cert, e.key)
	out, err := os.OpenFile(e.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer out.Close()
	e.cmd.Stdout, e.cmd.Stderr = out, out
	require.NoError(t, e.cmd.Start())
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the receiver", func() (bool, error) {
		c, err := net.Dial("tcp", e.address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil, nil
	}))
}

func (e *example) end() {
	if e.cmd != nil {
		_ = e.cmd.Process.Kill()
		_ = e.cmd.Wait()
		e.cmd = nil
	}
}

// told are the states that it was told of an agent, in no order.
func (e *example) told(t *testing.T, task string) (states []string) {
	t.Helper()
	raw, err := os.ReadFile(e.out)
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		var v struct {
			Type string
			Data struct{ Task, State, Spoke string }
		}
		if json.Unmarshal([]byte(line), &v) == nil && v.Data.Task == task {
			require.Equal(t, "attic", v.Data.Spoke)
			states = append(states, v.Data.State)
		}
	}
	return states
}

// awaits waits until it was told of an agent from its order to its end; what lies between may be over too soon to be told.
func (e *example) awaits(t *testing.T, task string) {
	t.Helper()
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for what the receiver is told", func() (bool, error) {
		states := e.told(t, task)
		return slices.Contains(states, "queued") && slices.Contains(states, "completed"), nil
	}))
	states := e.told(t, task)
	slices.Sort(states)
	require.Equal(t, slices.Compact(slices.Clone(states)), states, "each once")
}

// A webhook from its creation to its end, as it is typed, with the receiver of the documents: over a hub that is killed
// and a receiver that is down.
func TestWebhooksOnTheCommandLine(t *testing.T) {
	t.Parallel()
	e := newExample(t)
	m := startHub(t, "--webhook-allow", "127.0.0.0/8", "--webhook-ca", e.cert)
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--heartbeat", "1s"))
	h := hand{t: t, dir: m.Hub.Dir}
	_, port, err := net.SplitHostPort(e.address)
	require.NoError(t, err)
	url := "https://localhost:" + port + "/in"

	h.refused(exitMisuse, "its port is not 443", "webhook", "create", "board", url)
	require.Contains(t, h.do("webhook", "create", "board", url, "--port", port), "its receiver verifies by the key whpk_")
	var w api.Webhook
	h.read(&w, 0, "webhook", "show", "board", "-o", "json")
	e.start(t, w.PublicKey)
	require.Regexp(t, `^delivery test_\w+ was taken: its receiver answered 200\n$`, h.do("webhook", "test", "board"))

	const secret = "open-sesame-4711"
	first := h.spawn("--spoke", "attic", "--title", secret, "--env", "TOKEN="+secret, "--", "echo", secret)
	h.ends(first)
	e.awaits(t, h.ends(first).Task)

	e.end()
	var ids []string
	for range 3 {
		id := h.spawn("--spoke", "attic", "--", "true")
		ids = append(ids, h.ends(id).Task)
		require.NoError(t, m.Hub.Cmd.Process.Kill())
		m.Hub.Wait()
		require.NoError(t, m.Hub.Start(t.Context()))
		require.NoError(t, m.AwaitLink(t.Context(), "attic"))
	}
	require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting until the webhook fails", func() (bool, error) {
		h.read(&w, 0, "webhook", "show", "board", "-o", "json")
		return w.Failures >= 5, nil
	}))
	h.refused(exitUnreachable, "connection refused", "webhook", "test", "board")
	require.Regexp(t, `(?m)^webhook board +WRONG: it fails since [-0-9T:Z]+; one delivery at a time is tried`, h.run("", "doctor").out)
	require.Regexp(t, `(?m)^board +failing +https://localhost`, h.do("webhook", "list"))
	require.Regexp(t, `(?m)^state +failing\n(.*\n)*failing +\d+ in a row since `, h.do("webhook", "show", "board"))

	e.start(t, w.PublicKey)
	h.do("webhook", "test", "board")

	for _, id := range ids {
		e.awaits(t, id)
	}
	require.NotContains(t, h.run("", "doctor").out, "webhook board")
	require.Contains(t, h.do("webhook", "list"), "active")
	webhooksAreChanged(t, h, e)
	raw, err := os.ReadFile(e.out)
	require.NoError(t, err)
	require.NotContains(t, string(raw), secret)
	require.NotContains(t, m.Hub.LastWords(), "/in")
}

func webhooksAreChanged(t *testing.T, h hand, e *example) {
	var list api.DeliveryList
	h.read(&list.Items, 0, "webhook", "deliveries", "board", "-o", "json", "--limit", "1")
	require.Contains(t, h.do("webhook", "deliveries", "board"), list.Items[0].ID)
	require.Contains(t, h.do("webhook", "resend", "board", list.Items[0].ID), "is sent again")
	h.refused(exitNotFound, "there is no delivery", "webhook", "resend", "board", "msg_1")
	require.Contains(t, h.do("webhook", "rotate", "board"), "by the one before, too: whpk_")
	h.do("webhook", "test", "board") // its receiver has the key of before
	h.refused(exitMisuse, "needs a reason", "webhook", "disable", "board")
	require.Equal(t, "webhook board is disabled\n", h.do("webhook", "disable", "board", "--reason", "its host moves"))
	require.Regexp(t, `(?m)^webhook board +disabled; an owner sees why$`, h.run("", "doctor").out)
	h.refused(exitConflict, "is disabled: nothing is sent to it", "webhook", "resend", "board", list.Items[0].ID)
	require.Equal(t, "no webhook is disabled because of a restore\n", h.do("webhook", "enable", "--all"))
	require.Contains(t, h.do("webhook", "enable", "board"), "is told of what changes from now on")
	h.refused(exitMisuse, "add --yes if you mean it", "webhook", "delete", "board")
	require.Equal(t, "webhook board is deleted\n", h.do("webhook", "delete", "board", "--yes"))
	h.refused(exitNotFound, "there is no webhook", "webhook", "show", "board")
	audit := h.do("audit", "list", "--object", "board")
	for _, action := range []string{"created", "resent", "rotated", "disabled", "enabled", "deleted"} {
		require.Contains(t, audit, "webhook."+action)
	}
}

// A list, and what is shown of one, tell a webhook that a restore has disabled from one that somebody has.
func TestARestoredWebhookIsToldApart(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]api.Webhook{
		"restored": {State: api.WebhookStateDisabled, Why: store.Restored, DisabledBy: "self"},
		"disabled": {State: api.WebhookStateDisabled, Why: "its host moves"},
		"failing":  {State: api.WebhookStateActive, Failures: 1},
		"active":   {State: api.WebhookStateActive},
	} {
		require.Equal(t, want, doing(v))
		word, _, _ := strings.Cut(webhookState(v), ":")
		require.Equal(t, want, word, "one word in both")
	}
}

// What the receiver of a webhook that was disabled has answered last is shown beside why it was.
func TestTheLastAnswerOfADisabledWebhook(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := api.Webhook{Name: "board", State: api.WebhookStateDisabled, Why: "it has failed for 3d", LastError: "it answered 500"}

	require.NoError(t, (&app{out: &out, output: "table"}).printWebhook(v))

	require.Regexp(t, `(?m)^state +disabled: it has failed for 3d$`, out.String())
	require.Regexp(t, `(?m)^failed +the last time: it answered 500$`, out.String())
	v.State, v.Why, v.Failures = api.WebhookStateActive, "", 1
	require.NoError(t, (&app{out: &out, output: "table"}).printWebhook(v))
	require.Regexp(t, `(?m)^state +failing$`, out.String(), "as in the list")
}

// A result fits 60 columns, but for what people have written.
func TestAResultFitsANarrowScreen(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	id := "01a21d27-44c0-73e9-a254-4bfac7de91f9"
	m := api.SignedMessage{Kind: "agent.result", ID: id, Sha256: strings.Repeat("a", 64), Key: "ed25519:" + strings.Repeat("k", 43)}
	v := api.TaskResult{ID: id, ShortID: "k7f3m2qp", State: "completed", Outcome: "completed", Provenance: api.Provenance{Conn: id, Attempt: 1, Order: m, Result: m}}

	require.NoError(t, (&app{out: &out, output: "table"}).align(resultPairs(v), 0))

	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len(line), 61, line)
	}
	require.Contains(t, out.String(), "sha256 aaaaaaaaaaaaaaaa..., by ed25519:kkkkkkkk...\n")
}
