package runtime

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxValue bounds the value of one variable, in bytes.
const maxValue = 64 << 10

// idPrefix begins the names that tell an agent who it is.
const idPrefix = "SPAWNMESH_"

// dangerous names make a program run code, or find its programs and
// libraries, where somebody else says. A name that ends in * stands for all
// that begin so.
var dangerous = []string{
	"BASHOPTS", "BASH_ENV", "BASH_FUNC_*", "BROWSER", "CARGO_*", "CC", "CDPATH", "CLASSPATH", "CXX", "DOTNET_STARTUP_HOOKS", "DYLD_*", "EDITOR", "ENV",
	"FPATH", "GCONV_PATH", "GIT_*", "GLIBC_TUNABLES", "GOENV", "GOFLAGS", "GOPROXY", "GOROOT", "GOTOOLCHAIN", "HOSTALIASES", "IFS", "JAVA_TOOL_OPTIONS",
	"JDK_JAVA_OPTIONS", "LD_*", "LESSCLOSE", "LESSOPEN", "LOCPATH", "LUA_CPATH*", "LUA_INIT*", "LUA_PATH*", "MAKEFLAGS", "NLSPATH", "NODE_OPTIONS",
	"NODE_PATH", "NPM_CONFIG_*", "PAGER", "PATH", "PERL5DB", "PERL5LIB", "PERL5OPT", "PERLLIB", "PHPRC", "PHP_INI_SCAN_DIR", "PIP_*", "PROMPT_COMMAND",
	"PS4", "PYTHONBREAKPOINT", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONWARNINGS", "RUBYLIB", "RUBYOPT", "RUSTC*", "SHELL",
	"SHELLOPTS", "SSH_ASKPASS", "SSLKEYLOGFILE", "VISUAL", "ZDOTDIR", "_JAVA_OPTIONS",
}

// harmless names are the few of a dangerous family that only say who works.
var harmless = []string{
	"GIT_AUTHOR_DATE", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_NAME", "GIT_COMMITTER_DATE", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_NAME", "GIT_TERMINAL_PROMPT",
}

// environment returns the complete environment, sorted by name.
func (e Exec) environment() ([]string, error) {
	env := map[string]string{
		"PATH":   e.Path,
		"HOME":   cmp.Or(e.Home, e.Dir),
		"LANG":   "C.UTF-8",
		"TMPDIR": cmp.Or(e.TempDir, e.Dir),
	}
	if e.Trace != "" {
		env[traceVariable] = e.Trace
	}
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		if err := e.checkName(name); err != nil {
			return nil, err
		}
		env[name] = e.Env[name]
	}
	for _, name := range slices.Sorted(maps.Keys(e.Host)) {
		if err := checkForm(name); err != nil {
			return nil, err
		}
		maps.DeleteFunc(env, func(asked, _ string) bool { return strings.EqualFold(asked, name) }) // the host wins
	}
	maps.Copy(env, e.Host)
	for _, name := range slices.Sorted(maps.Keys(e.IDs)) {
		if !isID(name) {
			return nil, refuse(BadEnv, "variable %q is not one an agent is told its identity by", name)
		}
		env[name] = e.IDs[name]
	}
	return render(env)
}

// checkForm refuses names that mean something else to us.
func checkForm(name string) error {
	if !wellFormed(name) {
		return refuse(BadEnv, "variable %q: a name is printable text without = and blanks", name)
	}
	if strings.HasPrefix(strings.ToUpper(name), idPrefix) {
		return refuse(BadEnv, "variable %q: names that begin with %s are set by the spoke", name, idPrefix)
	}
	return nil
}

// checkName refuses names that an order may not set.
func (e Exec) checkName(name string) error {
	if err := checkForm(name); err != nil {
		return err
	}
	if isDangerous(strings.ToUpper(name)) && !slices.Contains(e.Allowed, name) {
		return refuse(Policy, "variable %q can make programs run other code; the policy of this spoke does not allow it by name", name)
	}
	return nil
}

func wellFormed(name string) bool {
	odd := func(r rune) bool { return r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	return name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, odd)
}

func isDangerous(upper string) bool {
	if slices.Contains(harmless, upper) {
		return false
	}
	return slices.ContainsFunc(dangerous, func(d string) bool {
		family, ok := strings.CutSuffix(d, "*")
		return d == upper || ok && strings.HasPrefix(upper, family)
	})
}

// render checks values and twins: two names that differ in case only are
// taken for one by some programs, and which one wins is anybody's guess.
func render(env map[string]string) ([]string, error) {
	seen := map[string]string{}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		switch {
		case strings.ContainsRune(value, 0):
			return nil, refuse(BadEnv, "variable %q: the value holds a NUL", name)
		case !utf8.ValidString(value):
			return nil, refuse(BadEnv, "variable %q: the value is not UTF-8", name)
		case len(value) > maxValue:
			return nil, refuse(BadEnv, "variable %q: the value is %d bytes long, the limit is %d; pass it in a file", name, len(value), maxValue)
		}
		upper := strings.ToUpper(name)
		if twin, ok := seen[upper]; ok {
			return nil, refuse(BadEnv, "variables %q and %q differ in case only; set one of them", twin, name)
		}
		seen[upper] = name
		list = append(list, name+"="+value)
	}
	return list, nil
}
