package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// jobsOf reads a file of jobs as spawn -f does, with flags beside it.
func jobsOf(t *testing.T, text string, flags ...string) *jobFile {
	t.Helper()
	path := put(t, "jobs.yaml", text, 0o600)
	for name, content := range map[string]string{"run.sh": "#!/bin/sh\n", "token": "hunter2-value"} {
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(content), 0o700))
	}
	f, err := (&app{}).readJobs(path)
	require.NoError(t, err)
	var line spawnFlags
	fl := pflag.NewFlagSet("line", pflag.ContinueOnError)
	line.fields(fl)
	require.NoError(t, fl.Parse(flags))
	f.complete(fl, line)
	return f
}

// Every field of a job says what its flag says; what is written stays as it is written.
func TestAJobSaysWhatFlagsSay(t *testing.T) {
	t.Parallel()
	f := jobsOf(t, `
# two documents, and what two jobs share
argv: [./run.sh, 0600, 1.50, yes, true, "", "a b"]
spoke: attic
title: |-
  two words
runtime: exec
env: {CI: 1, WORDS: "two words", OCTAL: 0644}
labels: {team: search, nightly: ""}
secrets: {TOKEN: "@token"}
secret_files: {KEY: "@token"}
files: ["run.sh:run.sh", "token:in/token"]
stdin_file: token
capabilities: [gpu]
isolation: user
priority: -5
max_retries: 3
on_loss: rerun
timeout: 2h
expires_in: 7d
idempotency_key: one
---
defaults: {any: true, env: {A: 1, B: 2}, capabilities: [gpu], priority: 7, argv: [sleep, 1]}
jobs:
  - title: a
  - env: {B: 3, C: 4}
    capabilities: []
    argv: [date]
`)

	require.Empty(t, f.wrong)
	require.Len(t, f.jobs, 3)
	r := f.jobs[0].req
	require.Len(t, r.ID, 36)
	s := r.Spawn
	require.Equal(t, commands.Spawn{Task: r.ID, Title: "two words", Runtime: "exec", Argv: []string{"./run.sh", "0600", "1.50", "yes", "true", "", "a b"},
		Env:          []commands.EnvVar{{Name: "CI"}, {Name: "WORDS"}, {Name: "OCTAL"}, {Name: "TOKEN", As: "secret"}, {Name: "KEY", As: "file"}},
		Capabilities: []string{"gpu", "isolation:user"}, Priority: -5, TimeoutMS: 7_200_000, MaxRetries: 3, OnLoss: "rerun",
		Files: []commands.File{{Path: "run.sh", Exec: true}, {Path: "in/token", Exec: true}}, Stdin: true}, s)
	var values []string
	for _, v := range r.Values {
		values = append(values, v.Reveal())
	}
	require.Equal(t, []string{"1", "two words", "0644", "hunter2-value", "hunter2-value", "#!/bin/sh\n", "hunter2-value", "hunter2-value"}, values, "files are named from where the file of jobs is")
	require.Equal(t, []any{"attic", false, int64(7 * 24 * 3600 * 1000), "one"}, []any{r.Spoke, r.Any, r.ExpiresInMS, r.IdempotencyKey})
	require.Equal(t, commands.Labels{"team": "search", "nightly": ""}, r.Labels)
	a, b := f.jobs[1], f.jobs[2]
	require.Equal(t, []string{"A=1", "B=2"}, a.env)
	require.Equal(t, []string{"sleep", "1"}, a.req.Spawn.Argv)
	require.Equal(t, []string{"A=1", "B=3", "C=4"}, b.env)
	require.Equal(t, []string{"date"}, b.req.Spawn.Argv)
	require.Equal(t, []string{"gpu"}, a.req.Spawn.Capabilities)
	require.Empty(t, b.req.Spawn.Capabilities)
	require.Equal(t, 7, b.req.Spawn.Priority)
	require.True(t, b.req.Any)
	require.True(t, strings.HasSuffix(b.at, "/jobs.yaml:26:5"), b.at)
}

// What is on the command line goes over what is in the file, name by name where it has names.
func TestFlagsOverrideTheFile(t *testing.T) {
	t.Parallel()
	const text = "defaults: {spoke: attic, env: {A: 1, B: 2}, capabilities: [gpu], idempotency_key: x, priority: 3, timeout: 1h}\njobs: [{argv: [a]}, {argv: [b], priority: 4}]"
	f := jobsOf(t, text, "--any", "--env", "B=3", "--env", "C=4", "--capability", "go", "--priority", "0", "--timeout", "2d", "--idempotency-key", "night")

	require.Empty(t, f.wrong)
	for i, j := range f.jobs {
		require.Equal(t, []string{"A=1", "B=3", "C=4"}, j.env)
		require.Equal(t, []string{"go"}, j.req.Spawn.Capabilities)
		require.Equal(t, []any{"", true, 0, int64(48 * 3600 * 1000)}, []any{j.req.Spoke, j.req.Any, j.req.Spawn.Priority, j.req.Spawn.TimeoutMS})
		require.Equal(t, []string{"night/1", "night/2"}[i], j.req.IdempotencyKey)
	}
	f = jobsOf(t, "any: true\nargv: [a]", "--spoke", "loft")
	require.Empty(t, f.wrong)
	require.Equal(t, []any{"loft", false}, []any{f.jobs[0].req.Spoke, f.jobs[0].req.Any})
}

// All that is wrong is named at once, with its place and field.
func TestJobsThatCannotBe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"argv: [a]\npriorty: 3":                                   {":2:1: priorty: there is no such field; did you mean: priority"},
		"argv: [a]\nwhatever: 3":                                  {":2:1: whatever: there is no such field; all are in: spawn --schema"},
		"argv: [a]\npriority: high\nany: maybe\ntimeout: 5x":      {`:2:11: priority: "high" is not a whole number`, ":3:6: any: write true or false", `:4:10: timeout: "5x" is not a duration`},
		"argv: echo hi":                                           {":1:7: argv: write a list"},
		"argv: [a, [b]]":                                          {":1:11: argv: write one word or text"},
		"argv: [a]\nenv: [A]":                                     {":2:6: env: write a mapping"},
		"argv: [a]\nenv:\n  A: 1\n  B=: 2":                        {`:4:3: env: the name "B=" is empty or has an =`},
		"argv: [a]\nenv:\n  A: {x: y}":                            {":3:3: env: A: write one word or text"},
		"argv: [a]\ntitle:":                                       {"title: write one word or text"},
		"argv: [a]\nenv: &e {A: 1}":                               {"env: write a mapping"},
		"argv: [a]\ntitle: &t x":                                  {"title: anchors and aliases are not read"},
		"spoke: x":                                                {":1:1: argv: no command given"},
		"argv: [a]\nspoke: x\nany: true":                          {":1:1: give a spoke or any, not both"},
		"argv: [a]\nexpires_in: 30d":                              {":1:1: an order may be started for 1s to 7d, not 30d"},
		"argv: [a]\nisolation: total":                             {":1:1: isolation total is not a level"},
		"argv: [a]\nfiles: [none:x]":                              {":1:1: reading files"},
		"argv: [a]\nfiles: [run.sh:../x]":                         {`:../x: the path "../x" of a file`},
		"argv: [a]\nsecrets: {X: plain}":                          {":1:1: secrets wants NAME=@FILE"},
		"argv: [a]\npriority: 101":                                {":1:1: priority 101 is outside -100..100"},
		"[a, b]":                                                  {":1:1: a document is a job, or defaults and jobs"},
		"defaults: {priorty: 1}\njobs: [{argv: [a]}, {argv: []}]": {":1:12: priorty: there is no such field"},
		"defaults: x\njobs: []":                                   {":1:11: defaults: write fields of a job"},
		"defaults: {}\njobs: {argv: [a]}":                         {"jobs: write a list of jobs"},
		"jobs: [a]":                                               {":1:8: jobs: a job is a mapping"},
		"jobs: []\nargv: [a]":                                     {":2:1: argv: beside defaults and jobs there is nothing"},
		"argv: [a]\nidempotency_key: x\n---\nargv: [b]\nidempotency_key: x": {"jobs.yaml:1:1 has the same idempotency_key"},
	} {
		f := jobsOf(t, text)
		require.Len(t, f.wrong, len(want), "%s: %v", text, f.wrong)
		for i, why := range want {
			require.ErrorContains(t, f.wrong[i], why, text)
			require.ErrorContains(t, f.wrong[i], "jobs.yaml:", text)
			require.Equal(t, exitMisuse, exitOfCode(refusal(f.wrong[i]).Code))
		}
	}
	for text, why := range map[string]string{
		"":                                "has no jobs",
		"---\n---\n# nothing":             "has no jobs",
		"jobs: []":                        "has no jobs",
		"a: [":                            ":1:4: ",
		"a: 1\na: 2":                      `:2:1: mapping key "a" already defined`,
		strings.Repeat("#", maxJobFile+1): "has more than 2 MiB",
	} {
		_, err := (&app{}).readJobs(put(t, "jobs.yaml", text, 0o600))
		require.ErrorContains(t, err, why, commands.Clip(text))
	}
	_, err := (&app{}).readJobs(filepath.Join(t.TempDir(), "none"))
	require.Equal(t, commands.Validation, commands.CodeOf(err))
}

// Directives belong to the document behind them.
func TestJobsWithDirectives(t *testing.T) {
	t.Parallel()
	f := jobsOf(t, "%YAML 1.2\n---\nargv: [a]\n---\nargv: [b]\n...\n%YAML 1.2\n---\nargv: [c]\n")
	require.Empty(t, f.wrong)
	require.Len(t, f.jobs, 3)
	require.Equal(t, []string{"c"}, f.jobs[2].req.Spawn.Argv)
}

// A few bytes a level would take all memory of this host.
func TestJobsThatNestTooDeep(t *testing.T) {
	t.Parallel()
	block := func(open string, n int) (text string) {
		for i := range n {
			text += strings.Repeat(" ", i) + open + "\n"
		}
		return text
	}
	for name, deep := range map[string]string{"lists": "argv: " + strings.Repeat("[", 1<<20), "mappings": strings.Repeat("{a: ", 1<<18), "entries": strings.Repeat("- ", 1<<18),
		"keys": block("a:", 1000), "entries in lines": block("-", 1000), "keys of keys": strings.Repeat("? ", 1<<18), "the last of many": strings.Repeat("argv: [a]\n---\n", 1000) + strings.Repeat("[", 40)} {
		_, err := (&app{}).readJobs(put(t, "jobs.yaml", deep, 0o600))
		require.ErrorContains(t, err, "this nests deeper than jobs do", name)
		require.Regexp(t, `jobs.yaml:\d+:\d+: `, err.Error(), name)
	}
	wide := "jobs:\n" + strings.Repeat("- argv: ['[', '[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[', '{', \"- - -\"]\n  env:\n    A: 1\n    B: 2\n", 100)
	require.Len(t, jobsOf(t, wide).jobs, 100, "what is closed again is not deep")
}

// The library compares each key of a mapping with all others of it.
func TestJobsWithTooManyKeys(t *testing.T) {
	t.Parallel()
	keys := func(n int, before, after string) (text string) {
		for i := range n {
			text += fmt.Sprintf("%sK%d: x%s", before, i, after)
		}
		return text
	}
	for name, text := range map[string]string{"in lines": "argv: [a]\nenv:\n" + keys(1001, "  ", "\n"), "in brackets": "argv: [a]\nenv: {" + keys(1001, "", ", ") + "}", "of the document": keys(1001, "", "\n")} {
		_, err := (&app{}).readJobs(put(t, "jobs.yaml", text, 0o600))
		require.ErrorContains(t, err, "a mapping has more than 1000 keys", name)
	}
	half := keys(500, "    ", "\n")
	f := jobsOf(t, "jobs:\n"+strings.Repeat("- argv: [a]\n  env:\n"+half, 3)+"- argv: [b]\n  env: {"+keys(500, "", ", ")+"}\n  labels: {"+keys(20, "", ", ")+"}\n")
	require.Len(t, f.jobs, 4, "each mapping has its own: %v", f.wrong)
}

// A file that others wrote is read in the time that its length takes, or refused.
func TestJobsThatAreTooMany(t *testing.T) {
	t.Parallel()
	read := func(text string) (*jobFile, error) { return (&app{in: strings.NewReader(text)}).readJobs("-") }
	n := scale.Larger(t, "SPAWNMESH_JOBS", 11_000, 40_000)
	docs, err := parseJobs([]byte(strings.Repeat("a: 1\n---\n", n))) // minutes of 40,000, were it the square of their number
	require.NoError(t, err)
	require.Len(t, docs, n+1)
	for name, text := range map[string]string{"entries": "jobs:\n" + strings.Repeat("-\n", 1_000_000), "words": "argv: [" + strings.Repeat("a,", 1_000_000) + "]", "documents": strings.Repeat("a: 1\n---\n", 200_000)} {
		_, err := read(text)
		require.ErrorContains(t, err, "there is more here than jobs need", name)
	}
	f, err := read("jobs:\n" + strings.Repeat("-\n", n))
	require.NoError(t, err)
	require.Len(t, f.wrong, 1)
	require.ErrorContains(t, f.wrong[0], fmt.Sprint(n)+" jobs, limit 10000")
}

// What many jobs bring is in memory once, and has an end.
func TestWhatJobsBringTogether(t *testing.T) {
	t.Parallel()
	b := brought{texts: map[string]string{}, most: 10}
	for range 100 {
		require.NoError(t, b.share(commands.Values{commands.NewSecret("script"), commands.NewSecret("data")}))
	}
	err := b.share(commands.Values{commands.NewSecret("x")})
	require.ErrorContains(t, err, "have more than 10 bytes")
	require.NotEmpty(t, refusal(err).Hint)
}

// Whatever the text is, it is read or refused.
func FuzzJobs(f *testing.F) {
	for _, seed := range []string{"argv: [a]", "defaults: {}\njobs: [{argv: [a]}]", "a: &x {b: *x}", "- 1", "\"", "{", "? a\n: b", "argv: !!str a", "<<: *x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := (&app{in: strings.NewReader(text)}).readJobs("-")
		if err != nil {
			require.Equal(t, commands.Validation, commands.CodeOf(err))
			return
		}
		require.NotZero(t, len(file.jobs)+len(file.wrong))
	})
}

// The schema that is published is the one that is made of the flags, and the example is one by it and by the program.
func TestTheSchemaOfJobs(t *testing.T) {
	t.Parallel()
	var shown bytes.Buffer
	require.Zero(t, run(t.Context(), &app{out: &shown, err: &shown, getenv: func(string) string { return "" }}, []string{"spawn", "--schema"}))
	published, err := os.ReadFile("../../docs/job.schema.json")
	require.NoError(t, err)
	require.Equal(t, string(published), shown.String(), "run: bin/spawnmesh spawn --schema >docs/job.schema.json")
	var s struct {
		Defs struct {
			Job struct{ Properties map[string]any }
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(published, &s))

	c := (&app{}).spawnCommand()
	notInFiles := []string{"id", "stdin", "with", "dirty", "wait", "follow", "wait-timeout", "jobs", "schema"}
	flags := 0
	c.Flags().VisitAll(func(flag *pflag.Flag) {
		if _, there := s.Defs.Job.Properties[fieldName(flag)]; !there {
			require.Contains(t, notInFiles, flag.Name)
			return
		}
		flags++
	})
	require.Equal(t, flags+1, len(s.Defs.Job.Properties), "and argv")

	example, err := (&app{}).readJobs("../../docs/examples/jobs.yaml")
	require.NoError(t, err)
	example.complete(pflag.NewFlagSet("line", pflag.ContinueOnError), spawnFlags{})
	require.Empty(t, example.wrong)
	require.Len(t, example.jobs, 3)
}
