package commands

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A result says of a bundle what git needs to take it, and nothing that it could not be.
func TestTheBundleOfAResult(t *testing.T) {
	t.Parallel()
	good := func() *Bundle {
		return &Bundle{Blob: Blob{Digest: "sha256-" + strings.Repeat("a", 64), Size: 10}, Base: strings.Repeat("1", 40), Tip: strings.Repeat("2", 40), Commits: 3}
	}
	require.NoError(t, (*Bundle)(nil).check())
	require.NoError(t, good().check())
	for name, spoil := range map[string]func(*Bundle){
		"nothing behind its base":      func(b *Bundle) { b.Tip = b.Base },
		"a branch for a commit":        func(b *Bundle) { b.Tip = "main" },
		"an option for a commit":       func(b *Bundle) { b.Base = "--upload-pack=" + strings.Repeat("1", 26) },
		"digests of two kinds":         func(b *Bundle) { b.Tip = strings.Repeat("2", 64) },
		"no commits":                   func(b *Bundle) { b.Commits = 0 },
		"another digest":               func(b *Bundle) { b.Digest = "md5-" + strings.Repeat("a", 32) },
		"a negative size":              func(b *Bundle) { b.Size = -1 },
		"more than any spoke can take": func(b *Bundle) { b.Size = MaxBlobSize + 1 },
	} {
		b := good()
		spoil(b)

		require.Error(t, b.check(), name)
		require.Error(t, (&Result{Bundle: b}).checkWork(), name)
	}
	require.Error(t, (&Result{Kept: strings.Repeat("x", MaxKept+1)}).checkWork())
	require.Error(t, (&Result{Kept: "two\nlines"}).checkWork())
}

// What a result says was left builds on the commit that its order says, and on no other.
func TestABundleAnswersItsOrder(t *testing.T) {
	t.Parallel()
	tip, origin := strings.Repeat("1", 40), strings.Repeat("2", 40)
	clean, dirty := Input{Kind: InputGit, Tip: tip}, Input{Kind: InputGit, Tip: tip, Origin: origin}
	beside := Input{Kind: InputGit, Tip: tip, Path: "lib"}
	for _, tt := range []struct {
		inputs []Input
		base   string
		ok     bool
	}{
		{[]Input{clean}, tip, true},
		{[]Input{beside, dirty}, origin, true},
		{[]Input{dirty}, tip, false},
		{[]Input{clean}, origin, false},
		{[]Input{beside}, tip, false},
		{nil, tip, false},
	} {
		err := (&Bundle{Base: tt.base}).Answers(&Spawn{Inputs: tt.inputs})
		require.Equal(t, tt.ok, err == nil, "%v", tt)
		require.True(t, tt.ok || CodeOf(err) == Conflict, "%v", err)
	}
}
