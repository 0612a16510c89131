// Package layout holds the test that keeps imports between rooms one-way.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/spawnmesh/spawnmesh/"

// may says which rooms a room may import besides its own sub-rooms; a room that
// is absent may not exist. Rooms of internal are for tests, except those of shared.
var may = map[string]string{
	"signing":              "",
	"commands":             "signing",
	"store":                "commands internal/audittree signing",
	"store/backlog":        "commands store",
	"store/messages":       "commands signing store",
	"store/postgres":       "",
	"federation":           "commands federation/transport internal/audittree internal/metrics signing store",
	"federation/join":      "signing",
	"federation/transport": "commands signing",
	"hub":                  "commands federation federation/join federation/transport hub/api hub/cron hub/output hub/transfer hub/webhook internal/blob internal/control internal/metrics internal/refusals internal/tracing signing store",
	"hub/api":              "",
	"hub/cron":             "commands",
	"hub/output":           "commands store",
	"hub/transfer":         "commands federation/transport internal/blob store",
	"spoke":                "commands federation federation/join federation/transport internal/blob internal/control internal/git internal/metrics internal/tartree internal/tracing signing spoke/door spoke/hostfault spoke/isolation spoke/output spoke/place spoke/policy spoke/runtime spoke/supervisor spoke/transfer spoke/worktree store store/backlog store/messages",
	"spoke/door":           "commands internal/control internal/remove signing spoke/place store/backlog store/messages",
	"spoke/acp":            "commands spoke/acp/wire spoke/door store/backlog",
	"spoke/acp/wire":       "",
	"hub/webhook":          "commands internal/feed internal/metrics store",
	"spoke/isolation":      "commands internal/remove spoke/hostfault spoke/isolation/attack spoke/supervisor",
	"spoke/output":         "commands federation federation/transport signing spoke/hostfault spoke/supervisor store store/backlog",
	"spoke/hostfault":      "",
	"spoke/transfer":       "commands federation/transport internal/blob store/backlog",
	"spoke/place":          "spoke/hostfault",
	"spoke/policy":         "commands spoke/acp/wire spoke/hostfault spoke/place spoke/runtime",
	"spoke/runtime":        "spoke/hostfault spoke/place spoke/supervisor",
	"spoke/worktree":       "internal/git",
	"spoke/supervisor":     "internal/remove spoke/hostfault spoke/supervisor/attempt spoke/supervisor/confine spoke/supervisor/shim spoke/supervisor/tree",

	"spoke/isolation/attack":   "",
	"spoke/supervisor/attempt": "spoke/supervisor/plain",
	"spoke/supervisor/confine": "spoke/supervisor/plain",
	"spoke/supervisor/disk":    "spoke/supervisor/plain",
	"spoke/supervisor/plain":   "",
	"spoke/supervisor/shim":    "spoke/hostfault spoke/supervisor/attempt spoke/supervisor/confine spoke/supervisor/disk spoke/supervisor/plain spoke/supervisor/tree",
	"spoke/supervisor/tree":    "spoke/hostfault spoke/supervisor/attempt spoke/supervisor/plain",

	"cmd/spawnmesh":    "commands federation federation/join federation/transport hub hub/api hub/cron hub/output hub/webhook internal/audittree internal/backup internal/bench internal/config internal/conformance internal/contexts internal/control internal/demo internal/fleet internal/git internal/instance internal/listener internal/node internal/tartree internal/token internal/tracing signing spoke spoke/acp spoke/door spoke/policy spoke/runtime spoke/supervisor store store/backlog store/messages store/postgres",
	"scripts/acpgen":   "",
	"scripts/fetchpg":  "",
	"scripts/gotest":   "",
	"scripts/mutants":  "",
	"internal/bench":   "commands federation/transport hub hub/api internal/bench/record internal/control internal/fleet internal/instance signing spoke/policy spoke/supervisor store",
	"internal/control": "commands hub/api internal/tracing",

	"internal/conformance": "commands federation/join federation/transport hub hub/api internal/audittree internal/control internal/faulty internal/fleet internal/forge signing store",

	"internal/bench/record": "",

	"internal/acptest":   "",
	"internal/audittree": "signing",
	"internal/blob":      "",
	"internal/backup":    "commands internal/blob internal/instance store store/postgres",
	"internal/canary":    "",
	"internal/config":    "commands",
	"internal/crash":     "",
	"internal/fsync":     "",
	"internal/remove":    "",
	"internal/git":       "",
	"internal/hostfile":  "",
	"internal/streak":    "",
	"internal/wait":      "",
	"internal/feed":      "commands store",
	"internal/demo":      "commands hub internal/control internal/fleet spoke/policy store",
	"internal/faulty":    "",
	"internal/forge":     "commands signing",
	"internal/fleet":     "commands hub internal/control spoke/policy",
	"internal/instance":  "commands signing store store/postgres",
	"internal/layout":    "",
	"internal/node":      "commands federation hub hub/api hub/webhook internal/audittree internal/blob internal/control internal/feed internal/instance internal/listener internal/metrics internal/token internal/tracing signing spoke spoke/supervisor store store/backlog store/messages",
	"internal/tartree":   "",
	"internal/token":     "",
	"internal/tracing":   "",
	"internal/contexts":  "commands internal/token",
	"internal/listener":  "commands hub/api internal/control internal/refusals internal/token store",
	"internal/refusals":  "store",
	"internal/pgtest":    "store/postgres",
	"internal/scale":     "",
	"internal/shortpath": "",
	"internal/storetest": "commands internal/pgtest signing store",
	"internal/metrics":   "",
	"internal/meshtest":  "commands federation/join federation/transport hub hub/output internal/control internal/faulty internal/forge internal/instance internal/listener internal/node internal/pgtest signing spoke spoke/policy spoke/supervisor store store/postgres",
}

// shared lists rooms that every room may import; they import none.
const shared = "internal/crash internal/fsync internal/hostfile internal/shortpath internal/streak internal/wait"

// outside says which rooms alone may know a library: its types stop there.
var outside = map[string]string{
	"github.com/nats-io/":       "federation/transport federation/join",
	"github.com/jackc/":         "store store/backlog store/messages store/postgres internal/pgtest internal/meshtest internal/storetest",
	"github.com/pressly/":       "store",
	"github.com/spf13/":         "cmd/spawnmesh internal/config",
	"filippo.io/":               "cmd/spawnmesh internal/backup",
	"github.com/knadh/":         "internal/config",
	"github.com/goccy/go-yaml":  "cmd/spawnmesh hub/api internal/config internal/contexts scripts/mutants spoke/policy",
	"github.com/oapi-codegen/":  "hub/api",
	"github.com/tmaxmax/go-sse": "internal/control",
	"golang.org/x/crypto":       "signing",
	"golang.org/x/mod":          "internal/audittree",
	"github.com/prometheus/":    "internal/metrics",
	"go.opentelemetry.io/":      "internal/tracing",
	"github.com/robfig/cron":    "hub/cron",
	"github.com/sourcegraph/":   "spoke/acp internal/acptest",
}

// ofShims lists the rooms that a shim consists of, and early what they may import from
// elsewhere: what Go initialises before nearly everything else.
const (
	ofShims = "spoke/hostfault spoke/supervisor/attempt spoke/supervisor/confine spoke/supervisor/disk spoke/supervisor/plain spoke/supervisor/shim spoke/supervisor/tree"
	early   = "cmp errors io io/fs maps math math/bits os os/signal runtime slices strconv sync sync/atomic syscall time unicode/utf8 unsafe"
)

type pkg struct {
	ImportPath string
	Name       string
	Doc        string
	Imports    []string
	GoFiles    []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Doc,Imports,GoFiles", module+"...").Output()
	require.NoError(t, err)
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else {
			require.NoError(t, err)
		}
		pkgs = append(pkgs, p)
	}
}

func in(list, word string) bool {
	for _, w := range strings.Fields(list) {
		if w == word {
			return true
		}
	}
	return false
}

func TestImportsGoDown(t *testing.T) {
	for _, p := range list(t) {
		room := strings.TrimPrefix(p.ImportPath, module)
		allowed, known := may[room]
		require.True(t, known, "%s is not a room of this project; a new one needs a line in this table", room)
		for _, path := range p.Imports {
			if other, ours := strings.CutPrefix(path, module); ours {
				require.True(t, in(shared, other) || in(allowed, other), "%s must not import %s", room, other)
			}
			for library, rooms := range outside {
				if strings.HasPrefix(path, library) {
					require.True(t, in(rooms, room), "%s must not import %s", room, path)
				}
			}
		}
	}
}

// A shim is one before the rest of its program is initialised (decision 17).
func TestAShimIsMadeOfLittle(t *testing.T) {
	seen := 0
	for _, p := range list(t) {
		if !in(ofShims, strings.TrimPrefix(p.ImportPath, module)) {
			continue
		}
		seen++
		for _, path := range p.Imports {
			require.True(t, in(early, path) || in(ofShims, strings.TrimPrefix(path, module)), "%s must not import %s", p.ImportPath, path)
		}
	}
	require.Len(t, strings.Fields(ofShims), seen)
}

func TestEveryRoomSaysWhatItIs(t *testing.T) {
	for _, p := range list(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		name := p.ImportPath[strings.LastIndexByte(p.ImportPath, '/')+1:]
		want := "Package " + name + " "
		if p.Name == "main" {
			want = "Command " + name + " "
		}
		require.True(t, strings.HasPrefix(p.Doc, want), "%s: the package comment starts with %q", p.ImportPath, want)
	}
}

// The coverage page names methods where something is done, as in Backlog.Sweep.
func TestTheCoverageNamesMethodsThatAreThere(t *testing.T) {
	page, err := os.ReadFile("../../docs/coverage.md")
	require.NoError(t, err)
	methods := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func \(\w+ \*?(\w+)\) (\w+)\(`)
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllSubmatch(text, -1) {
			methods[string(found[1])+"."+string(found[2])] = true
		}
		return err
	}))

	named := regexp.MustCompile("`(?:[a-z]+\\.)?([A-Z]\\w*\\.[A-Z]\\w*)`").FindAllSubmatch(page, -1)
	require.NotEmpty(t, named)
	for _, found := range named {
		require.True(t, methods[string(found[1])], "%s is no method", found[1])
	}
}

// The coverage page is worth as much as the tests it names.
func TestDocsNameTestsThatExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		tests.Write(text)
		return err
	}))

	named := regexp.MustCompile("`((Test|Benchmark|Fuzz)[A-Z][A-Za-z0-9]*)`")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, tests.String(), "func "+found[1]+"(", "%s names a test that is not there", page)
		}
	}
}
