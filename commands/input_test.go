package commands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func digestOf(c string) string { return "sha256-" + strings.Repeat(c, 64) }

func TestInputsThatCannotBe(t *testing.T) {
	t.Parallel()
	git := func(path string) Input {
		return Input{Kind: InputGit, Blob: Blob{digestOf("a"), 1}, Path: path, Tip: strings.Repeat("0", 40)}
	}
	tar := func(path string) Input { return Input{Kind: InputTar, Blob: Blob{digestOf("b"), 1}, Path: path} }
	file := func(path string) Input { return Input{Kind: InputFile, Blob: Blob{digestOf("c"), 1}, Path: path} }
	with := func(in Input, change func(*Input)) []Input { change(&in); return []Input{in} }
	many := make([]Input, MaxInputs+1)
	for i := range many {
		many[i] = file(fmt.Sprint("in/", i))
	}
	for name, tt := range map[string]struct {
		inputs []Input
		code   Code
	}{
		"65":                      {many, Validation},
		"no kind":                 {with(tar("a"), func(in *Input) { in.Kind = "" }), Validation},
		"another kind":            {with(tar("a"), func(in *Input) { in.Kind = "zip" }), Validation},
		"no digest":               {with(tar("a"), func(in *Input) { in.Digest = "" }), Validation},
		"another digest":          {with(tar("a"), func(in *Input) { in.Digest = "sha512-" + strings.Repeat("a", 64) }), Validation},
		"a digest in upper case":  {with(tar("a"), func(in *Input) { in.Digest = digestOf("A") }), Validation},
		"a digest with a line":    {with(tar("a"), func(in *Input) { in.Digest += "\n" }), Validation},
		"below nothing":           {with(tar("a"), func(in *Input) { in.Size = -1 }), Validation},
		"above 1 TiB":             {with(tar("a"), func(in *Input) { in.Size = MaxBlobSize + 1 }), Validation},
		"two sizes of one digest": {append(with(tar("a"), func(in *Input) { in.Size = 7 }), tar("b")), Validation},
		"no tip":                  {with(git(""), func(in *Input) { in.Tip = "" }), Validation},
		"a branch as tip":         {with(git(""), func(in *Input) { in.Tip = "main" }), Validation},
		"a short tip":             {with(git(""), func(in *Input) { in.Tip = "0123456" }), Validation},
		"an origin that is none":  {with(git(""), func(in *Input) { in.Origin = "main" }), Validation},
		"an origin of 64 digits":  {with(git(""), func(in *Input) { in.Origin = strings.Repeat("1", 64) }), Validation},
		"an origin of a tar":      {with(tar("a"), func(in *Input) { in.Origin = strings.Repeat("1", 40) }), Validation},
		"a tip of a tar":          {with(tar("a"), func(in *Input) { in.Tip = strings.Repeat("0", 40) }), Validation},
		"a tar that is executed":  {with(tar("a"), func(in *Input) { in.Exec = true }), Validation},
		"a file without a place":  {[]Input{file("")}, BadPath},
		"the directory by a dot":  {[]Input{tar(".")}, BadPath},
		"above":                   {[]Input{tar("../a")}, BadPath},
		"anywhere":                {[]Input{file("/etc/passwd")}, BadPath},
		"not in its shortest":     {[]Input{file("a//b")}, BadPath},
		"into git":                {[]Input{file("a/.GIT/config")}, BadPath},
		"two directories":         {[]Input{git(""), tar("")}, BadPath},
		"twice":                   {[]Input{tar("a"), file("a")}, BadPath},
		"in a file":               {[]Input{file("a"), tar("a/b/c")}, BadPath},
		"in a file of the order":  {[]Input{tar("run.sh/x")}, BadPath},
		"where a file is":         {[]Input{tar("run.sh")}, BadPath},
		"what a file is in":       {[]Input{file("in")}, BadPath},
	} {
		s := good()
		s.Dir, s.Files, s.Inputs = "", []File{{Path: "run.sh"}, {Path: "in/order/data"}}, tt.inputs
		require.Equal(t, tt.code, CodeOf(s.ValidateOrder()), name)
	}
	s := good()
	s.Dir, s.Files = "", []File{{Path: "src/run.sh"}}
	s.Inputs = []Input{git(""), git("lib"), tar("src"), file("src/data"), file("other")}
	require.NoError(t, s.ValidateOrder(), "a directory may have others in it")
	require.EqualValues(t, 3, s.InputBytes(), "what they share is fetched once")
	require.Len(t, s.Blobs(), 3)
	s.Files = []File{{Path: "lib/.git/config"}}
	require.Equal(t, BadPath, CodeOf(s.ValidateOrder()), "a file of the order in what git keeps")
	s.Files, s.Dir = nil, "/srv"
	require.Equal(t, Validation, CodeOf(s.ValidateOrder()), "in a directory of the host")
	s.Dir, s.Runtime, s.Argv = "", RuntimeNoop, nil
	require.Equal(t, Validation, CodeOf(s.ValidateOrder()), "of a noop")
	s.Inputs = many[:MaxInputs]
	s.Runtime, s.Argv = RuntimeExec, []string{"true"}
	require.NoError(t, s.ValidateOrder())
}
