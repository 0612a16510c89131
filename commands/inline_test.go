package commands

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/signing"
)

// inlined is the spawn of the vector with files, and what it brings.
func inlined() (*Spawn, Values) {
	s := good()
	s.Env, s.Files, s.Stdin = []EnvVar{{"KEY", EnvSecret}}, []File{{"in/data.bin", false}, {"run.sh", true}}, true
	return s, Values{NewSecret("hunter2"), NewSecret("\x00\xff\x80"), NewSecret("#!/bin/sh\n"), NewSecret("\x01\x02\x03")}
}

// Every byte of files and standard input arrives, for what they were sealed for alone.
func TestFilesAreForTheirPlacesAlone(t *testing.T) {
	hub, spoke := decrypter(t, 1), decrypter(t, 2)
	s, values := inlined()
	require.NoError(t, s.CheckValues(values))
	marked, err := s.Marked(hub, values)
	require.NoError(t, err)

	sealed, err := marked.Seal(spoke.Public(), valuesAt, values)

	require.NoError(t, err)
	require.NoError(t, sealed.Validate())
	got, err := sealed.Values(spoke, valuesAt)
	require.NoError(t, err)
	require.Equal(t, values, got)
	for name, change := range map[string]func(*Spawn){
		"another path":                func(s *Spawn) { s.Files[0].Path = "in/data.bio" },
		"files that changed places":   func(s *Spawn) { s.Files[0], s.Files[1] = s.Files[1], s.Files[0] },
		"a file that becomes a value": func(s *Spawn) { s.Env, s.Files = append(s.Env, EnvVar{"in/data.bin", ""}), s.Files[1:] },
		"one that is to be executed":  func(s *Spawn) { s.Files[0].Exec = true },
		"one that is not":             func(s *Spawn) { s.Files[1].Exec = false },
		"no standard input":           func(s *Spawn) { s.Stdin = false },
		"no file":                     func(s *Spawn) { s.Files = nil },
	} {
		other := *sealed
		other.Files = append([]File(nil), sealed.Files...)
		change(&other)
		_, err := other.Values(spoke, valuesAt)
		require.Equal(t, signing.SealOpen, CodeOf(err), name)
	}
}

// What is bound and how it is written is that of the vectors, which others write theirs from.
func TestTheVectorWithFiles(t *testing.T) {
	raw, err := os.ReadFile("../signing/testdata/sealed.json")
	require.NoError(t, err)
	var f struct {
		Cases []struct {
			Name   string
			AADHex string `json:"aad_hex"`
			Plain  string `json:"plaintext"`
		}
	}
	require.NoError(t, json.Unmarshal(raw, &f))
	c := f.Cases[len(f.Cases)-1]
	s, values := inlined()

	plain, err := s.plaintext(values)

	require.NoError(t, err)
	require.Equal(t, "good, with files and standard input", c.Name)
	require.Equal(t, c.Plain, string(plain))
	require.Equal(t, c.AADHex, hex.EncodeToString(s.bound()))
}

// An order without files and standard input is in every byte what it was.
func TestAnOrderWithoutFilesIsAsBefore(t *testing.T) {
	s := good()
	s.Env = []EnvVar{{"TOKEN", EnvSecret}, {"CI", EnvPlain}}
	raw, err := EncodeBody(s)
	require.NoError(t, err)
	require.NotContains(t, string(raw), "files")
	require.NotContains(t, string(raw), "stdin")
	require.Equal(t, "TOKEN\x00secret\x00CI\x00\x00", string(s.bound()))
}

// 96 KiB of bytes that are no text fit into a message, and not one more.
func TestTheSizeOfFiles(t *testing.T) {
	s := good()
	s.Files, s.Stdin = []File{{"data", false}}, true
	half := strings.Repeat("\xff", MaxValueBytes/2)
	require.NoError(t, s.CheckValues(Values{NewSecret(half), NewSecret(half)}))
	require.NoError(t, s.CheckSize(Values{NewSecret(half), NewSecret(half)}))

	err := s.CheckValues(Values{NewSecret(half), NewSecret(half + "x")})

	require.Equal(t, Validation, CodeOf(err))
	require.ErrorContains(t, err, "98305 bytes together, limit 98304 (96 KiB)")
	require.Equal(t, BadEnv, CodeOf(s.CheckValues(Values{NewSecret("x")})), "one is missing")
}

func TestFilesThatCannotBe(t *testing.T) {
	many := make([]File, MaxFiles+1)
	for i := range many {
		many[i].Path = strings.Repeat("x", i+1)
	}
	for name, tt := range map[string]struct {
		change func(*Spawn)
		code   Code
	}{
		"none":                 {func(s *Spawn) { s.Files = []File{{"", false}} }, BadPath},
		"the directory itself": {func(s *Spawn) { s.Files = []File{{".", false}} }, BadPath},
		"above":                {func(s *Spawn) { s.Files = []File{{"..", false}} }, BadPath},
		"beside":               {func(s *Spawn) { s.Files = []File{{"../home/x", false}} }, BadPath},
		"by a way around":      {func(s *Spawn) { s.Files = []File{{"a/../../x", false}} }, BadPath},
		"back again":           {func(s *Spawn) { s.Files = []File{{"a/../x", false}} }, BadPath},
		"anywhere":             {func(s *Spawn) { s.Files = []File{{"/etc/passwd", false}} }, BadPath},
		"a directory":          {func(s *Spawn) { s.Files = []File{{"a/", false}} }, BadPath},
		"two slashes":          {func(s *Spawn) { s.Files = []File{{"a//b", false}} }, BadPath},
		"a dot":                {func(s *Spawn) { s.Files = []File{{"./a", false}} }, BadPath},
		"a line feed":          {func(s *Spawn) { s.Files = []File{{"a\nb", false}} }, BadPath},
		"a NUL":                {func(s *Spawn) { s.Files = []File{{"a\x00b", false}} }, BadPath},
		"no UTF-8":             {func(s *Spawn) { s.Files = []File{{"a\xff", false}} }, BadPath},
		"too long":             {func(s *Spawn) { s.Files = []File{{strings.Repeat("a/", 256) + "b", false}} }, BadPath},
		"a name too long":      {func(s *Spawn) { s.Files = []File{{strings.Repeat("a", 256), false}} }, BadPath},
		"twice":                {func(s *Spawn) { s.Files = []File{{"a", false}, {"b", false}, {"a", true}} }, BadPath},
		"one in another":       {func(s *Spawn) { s.Files = []File{{"a/b/c", false}, {"a", false}} }, BadPath},
		"33":                   {func(s *Spawn) { s.Files = many }, Validation},
		"with a directory":     {func(s *Spawn) { s.Files, s.Dir = []File{{"a", false}}, "/srv" }, Validation},
		"of a noop":            {func(s *Spawn) { s.Files, s.Argv, s.Runtime = []File{{"a", false}}, nil, RuntimeNoop }, Validation},
		"input of a noop":      {func(s *Spawn) { s.Stdin, s.Argv, s.Runtime = true, nil, RuntimeNoop }, Validation},
	} {
		s := good()
		s.Dir = ""
		tt.change(s)
		require.Equal(t, tt.code, CodeOf(s.ValidateOrder()), name)
	}
	s := good()
	s.Dir, s.Files = "", []File{{"a/b", false}, {"a/c", true}, {"ab", false}, {"...", false}, {"ü/-x", false}}
	require.NoError(t, s.ValidateOrder())
	require.Equal(t, BadEnv, CodeOf(s.Validate()), "and nothing sealed")
	s.Files = many[:MaxFiles]
	require.NoError(t, s.ValidateOrder())
	s.Files, s.Dir, s.Stdin = nil, "/srv", true
	require.NoError(t, s.ValidateOrder(), "standard input is for any directory")
}

// What a file holds is written in one way only.
func TestFilesInAnotherSpelling(t *testing.T) {
	hub, spoke := decrypter(t, 1), decrypter(t, 2)
	s := good()
	s.Stdin = true
	for text, code := range map[string]Code{"": "", "AA==": "", "AB==": BadEnv, "AA=\\u000a=": BadEnv, "AA": BadEnv, "_w==": BadEnv, "*": BadEnv} {
		marked, err := s.Marked(hub, Values{{}})
		require.NoError(t, err)
		box, err := signing.Encrypt(spoke.Public(), valuesAt, s.bound(), []byte(`["`+text+`"]`))
		require.NoError(t, err)
		marked.Sealed.Key, marked.Sealed.Box = signing.SealingKeyIDOf(spoke.Public()), box

		_, err = marked.Values(spoke, valuesAt)

		require.Equal(t, code, CodeOf(err), text)
	}
}
