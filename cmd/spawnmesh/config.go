package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/internal/config"
)

// settingsHelp is what the help of the run commands says of all their flags.
const settingsHelp = `Each flag is a setting: where it is not given its variable counts, such as
SPAWNMESH_LOG_LEVEL for --log-level, else the file config.yaml in the data directory,
with a line such as "log-level: warn". See: spawnmesh config show`

// configFile returns where the settings of the instance in dir are.
func configFile(dir string) string { return filepath.Join(dir, "config.yaml") }

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Show and check the settings of an instance"}
	show := &cobra.Command{
		Use: "show [hub|spoke] [-- FLAG...]", Short: "Show each setting of hub run or spoke run, and where it comes from",
		Long: `Show each setting of hub run or spoke run, its value and where it comes from.

A flag wins over its variable, that over config.yaml in the data directory, and that
over the default. Flags follow --, as hub run and spoke run take them. Of the address
of a database neither password nor parameters are shown.

What a running instance uses are the settings of when it started.`,
		Example: "  spawnmesh --data-dir H config show hub\n  spawnmesh --data-dir S config show spoke -- --slots 8",
		RunE: func(c *cobra.Command, args []string) error {
			r, err := a.runnerFor(c, args)
			if err != nil {
				return err
			}
			return a.showSettings(r)
		},
	}
	check := &cobra.Command{
		Use: "check [hub|spoke]", Short: "Check the settings of hub run or spoke run; nothing is started",
		Long: `Check config.yaml in the data directory, and the variables, as hub run or spoke run
would, and read what they do: the policy, and certificate and key of the API. The
addresses of link and API are looked up, and not taken.

What is wrong is named with its line, and the exit code is 2. Nothing is started or
changed.`,
		Example: "  spawnmesh --data-dir H config check hub",
		RunE: func(c *cobra.Command, args []string) error {
			r, err := a.runnerFor(c, args)
			if err != nil {
				return err
			}
			if err := r.checkFiles(); err != nil {
				return err
			}
			if a.forPeople() {
				fmt.Fprintf(a.err, "%s can run with these settings\n", nameOf(r.command))
				return nil
			}
			return a.print(map[string]bool{"ok": true}, []any{map[string]bool{"ok": true}}, table{})
		},
	}
	c.AddCommand(show, check)
	return c
}

// runnerFor returns what a run command would run with, after its settings were checked.
func (a *app) runnerFor(c *cobra.Command, args []string) (*runner, error) {
	role, flags := "", args
	if at := c.ArgsLenAtDash(); at != 0 && len(args) > 0 {
		role, flags = args[0], args[1:]
		if at > 1 || at < 0 && len(flags) > 0 {
			return nil, misuse("%s takes hub or spoke, and flags behind --", nameOf(c)).Hinting("see: %s --help", c.CommandPath())
		}
	}
	return a.runnerWith(role, flags)
}

// runnerWith returns the runner of a role with flags as its run command takes them.
func (a *app) runnerWith(role string, flags []string) (*runner, error) {
	r, err := a.runnerOf(role)
	if err != nil {
		return nil, err
	}
	if err := r.command.ParseFlags(flags); err != nil {
		return nil, flagError(r.command, err)
	}
	if more := r.command.Flags().Args(); len(more) > 0 {
		return nil, misuse("%q is no flag of %s", more[0], nameOf(r.command))
	}
	return r, r.configure()
}

// runnerOf returns the runner of a role; "" is that of the instance in the data directory.
func (a *app) runnerOf(role string) (*runner, error) {
	dir, err := a.dir()
	if err != nil {
		return nil, err
	}
	if role == "" {
		if _, err := os.Stat(filepath.Join(dir, "keys")); err == nil {
			role = "spoke"
		}
		if isHub(dir) {
			role = "hub"
		}
	}
	var r *runner
	switch role {
	case "hub":
		r = a.hubRunner()
	case "spoke":
		r = a.spokeRunner()
	case "":
		return nil, misuse("nothing has run in %s yet; is it for a hub or for a spoke?", dir).Hinting("say it: %s config show hub", a.self())
	default:
		return nil, misuse("%q is neither hub nor spoke", role)
	}
	parent := &cobra.Command{Use: role}
	parent.AddCommand(r.command)
	(&cobra.Command{Use: "spawnmesh"}).AddCommand(parent)
	return r, nil
}

// showSettings prints the settings of a run command, and those of every command.
func (a *app) showSettings(r *runner) error {
	list, err := a.placeSettings()
	if err != nil {
		return err
	}
	list = append(list, r.settings...)
	t := table{head: []string{"SETTING", "VALUE", "FROM", "WHERE"}, yields: "VALUE"}
	for _, s := range list {
		t.rows = append(t.rows, []string{s.Name, s.Value, s.Source, s.Where})
		t.names = append(t.names, s.Name)
	}
	return printList(a, list, t)
}

// placeSettings says where the instance and its database are, which no file in the data
// directory can.
func (a *app) placeSettings() ([]config.Setting, error) {
	dir, err := a.dir()
	if err != nil {
		return nil, err
	}
	at := config.Setting{Name: "data-dir", Value: dir, Source: config.Default}
	switch {
	case a.dataDir != "":
		at.Source, at.Where = config.Flag, "--data-dir"
	case a.getenv("SPAWNMESH_DATA_DIR") != "":
		at.Source, at.Where = config.Variable, "SPAWNMESH_DATA_DIR"
	}
	list := []config.Setting{at, {Name: "database-url", Source: config.Default}}
	for _, name := range []string{"SPAWNMESH_DATABASE_URL", "DATABASE_URL"} {
		if v := a.getenv(name); v != "" {
			list[1] = config.Setting{Name: "database-url", Value: withoutSecrets(v), Source: config.Variable, Where: name}
			break
		}
	}
	for _, name := range []string{"SPAWNMESH_PG_BIN", "SPAWNMESH_PG_USER"} {
		s := config.Setting{Name: map[string]string{"SPAWNMESH_PG_BIN": "pg-bin", "SPAWNMESH_PG_USER": "pg-user"}[name], Value: a.getenv(name), Source: config.Default}
		if s.Value != "" {
			s.Source, s.Where = config.Variable, name
		}
		list = append(list, s)
	}
	return list, nil
}

// withoutSecrets is the address of a database without password and parameters.
func withoutSecrets(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" && u.Path == "" || u.Scheme == "" {
		return "(not shown)" // as in: host=db password=...
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	return shown.String()
}
