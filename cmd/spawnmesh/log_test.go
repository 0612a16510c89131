package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// A flag says how an instance logs, else a variable, else it is text from info on.
func TestHowAnInstanceLogs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args        []string
		level, form string // variables
		least       string // that is written
		json        bool
	}{
		"as it is":                 {nil, "", "", "info", false},
		"by flags":                 {[]string{"--log-level", "error", "--log-format", "json"}, "", "", "error", true},
		"by variables":             {nil, "debug", "json", "debug", true},
		"a flag is more":           {[]string{"--log-level", "warn", "--log-format", "text"}, "debug", "json", "warn", false},
		"a flag that is a default": {[]string{"--log-level=info"}, "error", "", "info", false},
		"of each one":              {[]string{"--log-format=json"}, "warn", "text", "warn", true},
	} {
		t.Run(name, func(t *testing.T) {
			var choice logChoice
			var said bytes.Buffer
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			choice.add(f)
			require.NoError(t, f.Parse(tt.args))
			a := &app{err: &said, getenv: func(v string) string {
				return map[string]string{"SPAWNMESH_LOG_LEVEL": tt.level, "SPAWNMESH_LOG_FORMAT": tt.form}[v]
			}}

			log, err := choice.logger(a)

			require.NoError(t, err)
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
		none.refused(exitMisuse, `SPAWNMESH_LOG_LEVEL is "INFO", which is none of: debug, info, warn, error`, role, "run")
		none.env = []string{"SPAWNMESH_LOG_FORMAT=xml"}
		none.refused(exitMisuse, `SPAWNMESH_LOG_FORMAT is "xml", which is none of: text, json`, role, "run")
	}
	none.env = []string{"SPAWNMESH_LOG_FORMAT=xml"}
	none.do("version")
}
