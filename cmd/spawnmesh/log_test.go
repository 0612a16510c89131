package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/canary"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// Text from info on, or as it was chosen.
func TestHowAnInstanceLogs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args  []string
		least string // that is written
		json  bool
	}{
		"as it is": {nil, "info", false},
		"less":     {[]string{"--log-level", "error", "--log-format", "json"}, "error", true},
		"all":      {[]string{"--log-level", "debug"}, "debug", false},
		"warnings": {[]string{"--log-level=warn", "--log-format=json"}, "warn", true},
	} {
		t.Run(name, func(t *testing.T) {
			var choice logChoice
			var said bytes.Buffer
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			choice.add(f)
			require.NoError(t, f.Parse(tt.args))
			require.NoError(t, choice.check())

			log := choice.logger(&app{err: &said})

			log.Debug("debug")
			log.Info("info")
			log.Warn("warn")
			log.Error("error", "at_most", 2*time.Second)
			first, _, _ := bytes.Cut(said.Bytes(), []byte("\n"))
			require.Contains(t, string(first), tt.least)
			if tt.json {
				for line := range bytes.Lines(said.Bytes()) {
					var v struct{ Time time.Time }
					require.NoError(t, json.Unmarshal(line, &v), "%s", line)
					require.WithinDuration(t, time.Now(), v.Time, time.Minute)
				}
				require.Contains(t, said.String(), `"at_most":"2s"}`)
			} else {
				require.Regexp(t, `^time=\d{4}-\d\d-\d\dT\S+ level=\w+ msg=`, string(first))
				require.Contains(t, said.String(), "at_most=2s\n")
			}
		})
	}
}

// What is no level or no format is misuse, and says what is one, before anything is started.
func TestHowNoInstanceLogs(t *testing.T) {
	t.Parallel()
	none := fresh(t)
	for _, role := range []string{"hub", "spoke"} {
		none.env = nil
		none.refused(exitMisuse, `--log-level is "loud", which is none of: debug, info, warn, error`, role, "run", "--log-level", "loud")
		none.refused(exitMisuse, `--log-format is "", which is none of: text, json`, role, "run", "--log-format=")
		none.env = []string{"SPAWNMESH_LOG_LEVEL=INFO"}
		none.refused(exitMisuse, `--log-level is "INFO", which is none of: debug, info, warn, error`, role, "run")
		none.env = []string{"SPAWNMESH_LOG_FORMAT=xml"}
		none.refused(exitMisuse, `--log-format is "xml", which is none of: text, json`, role, "run")
	}
	none.env = []string{"SPAWNMESH_LOG_FORMAT=xml"}
	none.do("version")
}

// Programs read one object for each event, on either side, and find an order by its id.
func TestTheLifeOfAnOrderInJSON(t *testing.T) {
	t.Parallel()
	m := startHub(t, "--log-format", "json")
	withCluster(t, filepath.Join(m.Dir, "attic"))
	require.NoError(t, m.AddSpoke(t.Context(), "attic", loose, "--log-format", "json"))
	c := canary.New()
	h := hand{t: t, dir: m.Hub.Dir, env: []string{"SECRET=" + c.Value}}
	id := h.spawn("--spoke", "attic", "--secret", "TOKEN=env:SECRET", "--", "sh", "-c", `echo "$TOKEN"; sleep 1; exit 3`, c.Value)
	h.ends(id)

	for _, side := range []struct {
		of    *fleet.Process
		lines []map[string]any
	}{
		{m.Hub, []map[string]any{
			{"msg": "order given", "kind": "agent.spawn", "connection": "attic"},
			{"msg": "agent started", "connection": "attic", "attempt": 1.0, "isolation": "none"},
			{"msg": "order ended", "connection": "attic", "attempt": 1.0, "state": "failed", "exit_code": 3.0},
		}},
		{m.Spokes["attic"], []map[string]any{
			{"msg": "order taken", "kind": "agent.spawn", "connection": "lab"},
			{"msg": "agent started", "attempt": 1.0, "isolation": "none"},
			{"msg": "agent ended", "attempt": 1.0, "outcome": "failed", "exit_code": 3.0},
		}},
	} {
		var got []map[string]any
		require.NoError(t, fleet.Poll(t.Context(), time.Minute, "waiting for the lines", func() (bool, error) {
			raw, err := os.ReadFile(filepath.Join(side.of.Dir, "log"))
			got = logged(t, raw, id)
			require.False(t, c.In(raw))
			return len(got) >= len(side.lines), err
		}))
		require.Len(t, got, len(side.lines))
		for i, want := range side.lines {
			require.Equal(t, "INFO", got[i]["level"])
			require.Subset(t, got[i], want)
		}
	}
}

// logged are the events of an agent in a log. All lines but those to whoever started the
// instance are objects.
func logged(t *testing.T, log []byte, id string) (list []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte(" is ready: ")) || !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		var event map[string]any
		require.NoError(t, json.Unmarshal(line, &event), "%s", line)
		if event["id"] == id {
			list = append(list, event)
		}
	}
	return list
}
