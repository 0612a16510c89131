package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
)

// An installation is what the flags of install say.
type installation struct {
	a                  *app
	role               string
	name, dir, user    string
	agents, show, over bool
	system             bool // root installs for the system, others for themselves
}

func (a *app) installCommand(role string) *cobra.Command {
	i := &installation{a: a, role: role, agents: role == "spoke", system: os.Geteuid() == 0}
	c := &cobra.Command{
		Use: "install [-- FLAG...]", Short: "Write the unit with which systemd runs this " + role,
		Long: `Write the unit with which systemd runs this ` + role + `: for root one of the system, for
others one of their own. Nothing is started; what to type next is said.

Settings are best in config.yaml in the data directory; flags behind -- go into the
unit. Variables of this terminal do not.

The unit runs as --user, who is by default the owner of the data directory, where
root installs. A spoke has all levels of isolation as root only.`,
		Example: "  spawnmesh --data-dir DIR " + role + " install --print\n  spawnmesh --data-dir DIR " + role + " install -- --log-format json",
		RunE: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 0 && len(args) > 0 {
				return misuse("%s takes flags of %s run behind --, and got %q", nameOf(c), role, args[0]).Hinting("see: %s --help", c.CommandPath())
			}
			return i.install(args)
		},
	}
	c.Flags().StringVar(&i.name, "unit", "spawnmesh-"+role, "`NAME` of the unit, without .service")
	c.Flags().StringVar(&i.dir, "unit-dir", "", "write it to `DIR` (default: where systemd looks for it)")
	c.Flags().StringVar(&i.user, "user", "", "run as user `NAME`; root only")
	c.Flags().BoolVar(&i.show, "print", false, "print the unit, and write nothing")
	c.Flags().BoolVar(&i.over, "force", false, "replace a unit that says something else")
	if role == "hub" {
		c.Flags().BoolVar(&i.agents, "agents", false, "it joins other hubs, and agents run here, too")
	}
	return c
}

func (i *installation) install(flags []string) error {
	u, err := i.unit(flags)
	if err != nil {
		return err
	}
	if i.show {
		fmt.Fprint(i.a.out, u)
		return nil
	}
	if err := i.makeDir(u); err != nil {
		return err
	}
	path, err := i.path()
	if err != nil {
		return err
	}
	if err := i.write(path, []byte(u.String())); err != nil {
		return err
	}
	return i.say(path)
}

// unit is the unit for these settings, which are checked as run does.
func (i *installation) unit(flags []string) (unit, error) {
	settled := *i.a
	settled.getenv = i.variable
	r, err := settled.runnerWith(i.role, flags)
	if err != nil {
		return unit{}, err
	}
	u := unit{Role: i.role, Agents: i.agents, Drain: time.Duration(r.drain)}
	if u.Dir, err = i.a.dir(); err != nil {
		return u, err
	}
	if u.Program, err = i.program(); err != nil {
		return u, err
	}
	if u.User, err = i.runAs(u.Dir); err != nil {
		return u, err
	}
	u.Run = append([]string{"--data-dir", u.Dir, i.role, "run"}, flags...)
	u.Reload = []string{"--data-dir", u.Dir, "spoke", "policy", "reload"}
	for _, w := range append(u.Run, u.Program) {
		if strings.ContainsFunc(w, unicode.IsControl) {
			return u, misuse("a unit cannot hold %q", commands.Clip(w))
		}
	}
	return u, nil
}

// variable is the environment of the unit: it has no setting that is a variable here.
func (i *installation) variable(name string) string {
	if name == "SPAWNMESH_DATA_DIR" || !strings.HasPrefix(name, "SPAWNMESH_") {
		return i.a.getenv(name)
	}
	return ""
}

// program is this program. One of the system that others can replace would give them its user.
func (i *installation) program() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	f, err := hostfile.Open(path, hostfile.Rule{})
	if err != nil {
		return "", fmt.Errorf("looking at the program that the unit is to start: %w", err)
	}
	return path, f.Close()
}

// runAs is the user of a unit of the system.
func (i *installation) runAs(dir string) (string, error) {
	if !i.system {
		if i.user != "" {
			return "", misuse("a unit of a user runs as that user, and --user says another").Hinting("type it as root for a unit of the system")
		}
		return "", nil
	}
	name := i.user
	if name == "" {
		name = "0"
		if info, err := os.Stat(dir); err == nil {
			name = strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))
		}
	}
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	if err != nil {
		return "", misuse("there is no user %q", commands.Clip(name)).Hinting("make it: useradd --system %s", commands.Clip(cmp.Or(i.user, "NAME")))
	}
	return u.Username, nil
}

// makeDir makes the data directory, which the unit needs before its first start.
func (i *installation) makeDir(u unit) error {
	if err := hostfile.Way(u.Dir); err != nil {
		return fmt.Errorf("looking at the data directory: %w", err)
	}
	if _, err := os.Stat(u.Dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(u.Dir, 0o711); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	if u.User == "" {
		return nil
	}
	owner, err := user.Lookup(u.User)
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	return os.Chown(u.Dir, uid, gid)
}

// path is where the unit belongs.
func (i *installation) path() (string, error) {
	if i.name == "" || strings.Trim(i.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@") != "" {
		return "", misuse("%q is no name of a unit", commands.Clip(i.name))
	}
	dir := i.dir
	switch home := i.a.getenv("HOME"); {
	case dir != "":
	case i.system:
		dir = "/etc/systemd/system"
	case i.a.getenv("XDG_CONFIG_HOME") != "":
		dir = filepath.Join(i.a.getenv("XDG_CONFIG_HOME"), "systemd", "user")
	case home != "":
		dir = filepath.Join(home, ".config", "systemd", "user")
	default:
		return "", misuse("where units of this user are is not known").Hinting("set HOME, or give --unit-dir")
	}
	return filepath.Abs(filepath.Join(dir, i.name+".service"))
}

// write writes the unit, and replaces none that says something else.
func (i *installation) write(path string, text []byte) error {
	there, err := os.ReadFile(path)
	if err == nil && bytes.Equal(there, text) {
		return nil
	}
	if err == nil && !i.over {
		return commands.Refuse(commands.Conflict, "%s says something else; nothing was changed", path).
			Hinting("compare it with what --print shows; --force replaces it")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the unit that is there: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing the unit: %w", err)
	}
	if err := fsync.Replace(path, text, 0o644); err != nil {
		return fmt.Errorf("writing the unit: %w", err)
	}
	return nil
}

// say names the file, and what to type next.
func (i *installation) say(path string) error {
	systemctl := "systemctl"
	if !i.system {
		systemctl = "systemctl --user"
	}
	next := []string{systemctl + " daemon-reload", systemctl + " enable --now " + commands.ShellLine([]string{i.name})}
	if !i.system {
		next = append(next, "loginctl enable-linger   # it then runs without a login, too")
	}
	i.a.did("%s was written", path)
	if !i.a.forPeople() {
		v := map[string]any{"path": path, "next": next}
		return i.a.print(v, []any{v}, table{names: []string{path}})
	}
	fmt.Fprintln(i.a.out, path)
	for _, name := range []string{"SPAWNMESH_DATABASE_URL", "DATABASE_URL", "SPAWNMESH_PG_BIN", "SPAWNMESH_PG_USER"} {
		if i.a.getenv(name) != "" {
			fmt.Fprintf(i.a.err, "%s is set here, and not in the unit: write it to the file environment in the data directory, mode 0600\n", name)
		}
	}
	fmt.Fprintln(i.a.err, "next:")
	for _, line := range next {
		fmt.Fprintln(i.a.err, "  "+line)
	}
	return nil
}
