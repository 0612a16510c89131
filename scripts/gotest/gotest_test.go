package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunShowsEachPackageAndWhatFailed(t *testing.T) {
	const head = "import \"testing\"\n"
	for name, tt := range map[string]struct {
		files map[string]string
		code  int
		said  []string
		never string
	}{
		"all pass": {map[string]string{"a/a_test.go": "package a\n" + head + "func TestA(t *testing.T) { t.Log(`quiet`) }"}, 0,
			[]string{`testing 1 packages`, `\[1/1\] ok   example/a +1 tests`, `(?m)^1 tests in 1 of 1 packages$`}, "quiet"},
		"one fails": {map[string]string{"a/a_test.go": "package a\n" + head + "func TestA(t *testing.T) { t.Log(`quiet`) }\nfunc TestB(t *testing.T) { t.Error(`loud`) }",
			"b/b.go": "package b"}, 1,
			[]string{`loud`, `/2\] FAIL example/a +2 tests`, `/2\] none example/b`, `2 of 2 packages; failed: example/a`}, "quiet"},
		"one panics": {map[string]string{"a/a_test.go": "package a\n" + head + "func TestA(t *testing.T) { panic(`oh no`) }"}, 1,
			[]string{`panic: oh no`, `failed: example/a`}, "ok  "},
		"one leaves": {map[string]string{"a/a_test.go": "package a\nimport (`fmt`; `os`; `testing`)\nfunc TestA(t *testing.T) { fmt.Println(`last words`); os.Exit(3) }"}, 1,
			[]string{`last words`, `failed: example/a`}, "ok  "},
		"one does not compile": {map[string]string{"a/a_test.go": "package a\n" + head + "func TestA(t *testing.T) { undefined() }"}, 1,
			[]string{`undefined: undefined`, `failed: example/a`}, "ok  "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			tt.files["go.mod"] = "module example\n\ngo 1.26.0\n"
			for file, content := range tt.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
			}
			var out, errOut bytes.Buffer

			code, err := run([]string{"-count=1", "./..."}, &out, &errOut)

			require.NoError(t, err)
			require.Equal(t, tt.code, code)
			for _, want := range tt.said {
				require.Regexp(t, want, out.String()+errOut.String())
			}
			require.NotContains(t, out.String(), tt.never)
		})
	}
}
