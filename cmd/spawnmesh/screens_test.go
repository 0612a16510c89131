package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// newScreens writes what is shown now into the scripts; whoever uses it reads the difference.
var newScreens = flag.Bool("screens", false, "write testdata/screens anew")

const screens = "testdata/screens"

// What a person is shown of a hub and of every command is in scripts, one for each command: "on 60"
// runs a command line on a terminal of 60 columns, "on pipe" without one, and "each" on terminals of
// 60, 80 and 160 columns, which must show the same words, none of them behind the edge.
func TestScreens(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	h := hand{t: t, dir: m.Hub.Dir}
	fill(t, h)
	testscript.Run(t, testscript.Params{Dir: screens, UpdateScripts: *newScreens, RequireUniqueNames: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"on": func(ts *testscript.TestScript, _ bool, args []string) {
				columns, _ := strconv.Atoi(args[0])
				text, err := shownOf(t, h.dir, columns, args[1:]...)
				ts.Check(err)
				fmt.Fprint(ts.Stdout(), text)
			},
			"each": func(ts *testscript.TestScript, _ bool, args []string) {
				text, err := shownOf(t, h.dir, 160, args...)
				ts.Check(err)
				for _, columns := range []int{60, 80} {
					narrow, err := shownOf(t, h.dir, columns, args...)
					ts.Check(err)
					ts.Check(fits(narrow, text, columns))
				}
				fmt.Fprint(ts.Stdout(), text)
			},
		}})
}

// fits reports that a text of help has the words of another, and lines that are too wide only where they are to be typed.
func fits(narrow, text string, columns int) error {
	if got, want := strings.Fields(narrow), strings.Fields(text); !slices.Equal(got, want) {
		return fmt.Errorf("with %d columns it is another text:\n%s\nand not\n%s", columns, narrow, text)
	}
	for line := range strings.Lines(narrow) {
		line = strings.TrimSuffix(line, "\n")
		if cells(line) > columns && !strings.Contains(text, line+"\n") {
			return fmt.Errorf("%q has more than %d cells", line, columns)
		}
		if words := strings.Fields(line); cells(line) > columns && len(words) > 1 && !typedLineOf.MatchString(line) {
			return fmt.Errorf("%q has more than %d cells, and is not to be typed", line, columns)
		}
	}
	return nil
}

// typedLineOf is a line of usage, or of an example.
var typedLineOf = regexp.MustCompile(`^ +(spawnmesh|git|echo|eval|\S+\s*=|\S*--)|\|`)

// fill makes something for every list to show.
func fill(t *testing.T, h hand) {
	t.Helper()
	// The last one runs for long enough that the spoke tells of its start, too.
	for i, command := range [][]string{{"true"}, {"false"}, {"sh", "-c", "sleep 1; exit 3"}} {
		id := fmt.Sprintf("0193a3c0-2222-7aaa-8bbb-77f4a4fefe0%d", i)
		h.do(append([]string{"spawn", "--spoke", "attic", "--id", id, "--title", "nightly run, step " + strconv.Itoa(i) + ": 夜間 of all that is kept", "--"}, command...)...)
		h.ends(id)
	}
	require.Eventually(t, func() bool { return strings.Contains(h.do("spokes", "-o", "json"), `"running": 0`) }, stuck, 50*time.Millisecond)
	for _, line := range []string{"invite --name loft", "backlog create --id A1 --title schema --priority 5", "backlog create --id A2 --title service --depends-on A1",
		"budget create money --dimension usd --hard 1", "quota create few --concurrent 1", "freeze --scope lane:slow --reason x"} {
		h.do(strings.Fields(line)...)
	}
}

// shownOf runs a command line in this process, and returns what it shows on a terminal of so many
// columns, or without one where that is 0: what differs between two runs is replaced.
func shownOf(t *testing.T, dir string, columns int, args ...string) (string, error) {
	args = append([]string{"--data-dir", dir, "--no-pager"}, args...) // nobody sits there to turn the pages
	a := &app{in: strings.NewReader(""), getenv: func(string) string { return "" }}
	if columns == 0 {
		var both bytes.Buffer
		a.out, a.err = &both, &both
		return finished(&both, run(t.Context(), a, args), dir), nil
	}
	keyboard, screen := aTerminal(t, columns)
	const end = "\x04"
	read := make(chan string, 1)
	go func() {
		var text bytes.Buffer
		some := make([]byte, 4096)
		for !bytes.HasSuffix(text.Bytes(), []byte(end)) {
			n, err := keyboard.Read(some)
			if text.Write(some[:n]); err != nil {
				break
			}
		}
		read <- strings.TrimSuffix(strings.ReplaceAll(text.String(), "\r", ""), end)
	}()
	a.out, a.err = screen, screen
	code := run(t.Context(), a, args)
	if _, err := io.WriteString(screen, end); err != nil {
		return "", err
	}
	text := <-read
	if at := strings.Index(text, "\n"); at > 0 && regexp.MustCompile(`^[A-Z ]+$`).MatchString(text[:at]) { // a table
		for line := range strings.Lines(strings.Split(text, "\n\n")[0]) {
			if n := cells(strings.TrimSuffix(line, "\n")); n > columns && !strings.Contains(line, dir) {
				return "", fmt.Errorf("%q has %d cells", line, n)
			}
		}
	}
	return finished(strings.NewReader(text), code, dir), nil
}

// differs is what is another thing in each run. Blanks are as many as something else is long.
var differs = []struct {
	what *regexp.Regexp
	is   string
}{
	{regexp.MustCompile(`\x1b\[[0-9;]*m`), ""},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[-0-9a-f]*…?`), "UUID"},
	{regexp.MustCompile(`\bmi1[a-z0-9…]+`), "INSTANCE"},
	{regexp.MustCompile(`(\d{4}-)?\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|[-+]\d\d:\d\d)?`), "TIME"},
	{regexp.MustCompile(`(?m)^\d+( +TIME)`), "N$1"},
	{regexp.MustCompile(`\b(up|alive|late|ended) (now|\d+[smhd])\b`), "$1 AGE"},
	{regexp.MustCompile(`\b(now|\d+[smh])\b( +\S)`), "AGE$2"},
	{regexp.MustCompile(`\d+\.\d M…?(iB)?`), "SIZE"},
	{regexp.MustCompile(`"(\w*at)": \d{13}`), `"$1": MS`},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3}\b`), "CLOCK"},
	{regexp.MustCompile(`\b(seq"?:?) \d+`), "$1 N"},
	{regexp.MustCompile(`"(payload|sig|body)": "[\w+/=-]{40,}"`), `"$1": "BASE64"`},
	{regexp.MustCompile(`ed25519:[\w-]{43}`), "ed25519:KEY"},
	{regexp.MustCompile(` \+\d[\d.]*[nµm]?[smh]\S*`), " +LATER"},
	{regexp.MustCompile(`"short_id": "\w+"`), `"short_id": "SHORT"`},
	{regexp.MustCompile(`\b(identity|signing)( +\S+ +(?:(?:TIME|-) +)?)[-\w]{12}`), "${1}${2}KEY"},
	{regexp.MustCompile(`uid:\d+`), "uid:N"},
	{regexp.MustCompile(` {2,}`), "  "},
}

func finished(text io.Reader, code int, dir string) string {
	raw, _ := io.ReadAll(text) // of memory
	shown := strings.ReplaceAll(string(raw), dir, "DIR")
	if strings.Contains(shown, "\nUsage:\n") {
		return shown
	}
	for _, d := range differs {
		shown = d.what.ReplaceAllString(shown, d.is)
	}
	if code != 0 {
		shown += fmt.Sprintf("exit code %d\n", code)
	}
	return shown
}

// The help of every command is in a script.
func TestEveryCommandHasAScreen(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(screens + "/*.txtar")
	require.NoError(t, err)
	all := ""
	for _, path := range files {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		all += "\n" + string(raw)
	}
	everyCommand(func(c *cobra.Command, path []string) {
		if len(path) > 0 && path[0] != "completion" && c.IsAvailableCommand() {
			require.Contains(t, all, "\neach help "+strings.Join(path, " ")+"\n")
		}
	})
}
