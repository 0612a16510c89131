package spoke

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/isolation"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/store"
)

// The values of an order's environment, its files and its standard input are sealed in the database
// of a spoke as they were on the way. They are opened when an order is judged and when an attempt
// starts, and are then in the memory of this process, of the shim and of the agent; files are in the
// directories of the attempt.

// secretsDir is where, in the home of an agent, the files are that hold values for it.
const secretsDir = ".secrets"

// LeastSecret is how many bytes a secret has at least that is taken out of output.
const LeastSecret = runtime.LeastSecret

// Hides reports whether a secret is taken out of what its agent writes.
func Hides(secret string) bool { return runtime.Hides(secret) }

// A environment is what one spawn brings: what its variables are set to, files and standard input.
type environment struct {
	vars    map[string]string
	home    []placed // files with values of variables, below secretsDir
	work    []placed
	stdin   string
	prompt  string
	secrets []string // values that are taken out of the agent's output
}

// openEnvironment opens the values of s, which command brought over conn. The files that it
// has values in are in home.
func (s *Spoke) openEnvironment(spawn *commands.Spawn, conn, command, home string) (environment, error) {
	e := environment{vars: map[string]string{}}
	values, err := spawn.Values(s.Keys.Decrypter, commands.ValuesPlace(s.DB.Self(), conn, command))
	if err != nil {
		return e, err
	}
	for i, v := range spawn.Env {
		value := values[i].Reveal()
		e.vars[v.Name] = value
		switch v.As {
		case commands.EnvFile:
			path := filepath.Join(secretsDir, v.Name)
			e.vars[v.Name] = filepath.Join(home, path)
			e.home = append(e.home, placed{path: path, content: value, mode: 0o600})
			e.secrets = append(e.secrets, value)
		case commands.EnvSecret:
			e.secrets = append(e.secrets, value)
		}
	}
	values = values[len(spawn.Env):]
	for i, f := range spawn.Files {
		e.work = append(e.work, placed{path: f.Path, content: values[i].Reveal(), mode: modeOf(f)})
	}
	values = values[len(spawn.Files):]
	if spawn.Stdin {
		e.stdin, values = values[0].Reveal(), values[1:]
	}
	if spawn.Prompt {
		e.prompt = values[0].Reveal()
	}
	return e, nil
}

func modeOf(f commands.File) fs.FileMode {
	if f.Exec {
		return 0o700
	}
	return 0o600
}

// environmentOf opens the values of an attempt. The error is a [*runtime.Refusal]: they can be opened no other time either.
func (s *Spoke) environmentOf(r *run) (environment, error) {
	e, err := s.openEnvironment(&r.spec, r.asker, r.asked.Command, r.own().Home)
	if err != nil {
		err = &runtime.Refusal{Reason: runtime.BadEnv, Text: err.Error()}
	}
	return e, err
}

// judgeOrder asks the policy about an order as it came, with the values that it brought.
func (s *Spoke) judgeOrder(m *store.Incoming, judge func(map[string]string) *commands.Refused) *commands.Refused {
	e, err := s.openEnvironment(m.Body.(*commands.Spawn), m.Conn, m.Header.ID, "/")
	if err != nil {
		if r, ok := err.(*commands.Refused); ok {
			return r
		}
		return commands.Refuse(commands.BadEnv, "the values of the environment variables cannot be used")
	}
	return judge(e.vars)
}

// writeFiles puts files into directories that no agent has had yet.
func (e environment) writeFiles(d isolation.Dirs) error {
	if err := write(d.Home, e.home); err != nil {
		return fmt.Errorf("writing the secrets of an agent: %w", err)
	}
	if err := write(d.Work, e.work); err != nil {
		return fmt.Errorf("writing the files of an agent: %w", err)
	}
	return nil
}

// giveFiles makes the files a user's own, before its agent runs.
func (e environment) giveFiles(d isolation.Dirs, user int64) error {
	if user == 0 {
		return nil
	}
	if err := give(d.Home, e.home, int(user)); err != nil {
		return fmt.Errorf("giving an agent its secrets: %w", err)
	}
	if err := give(d.Work, e.work, int(user)); err != nil {
		return fmt.Errorf("giving an agent its files: %w", err)
	}
	return nil
}

// removeSecrets removes the files of an attempt that is over. Its agent may have put
// anything in their place: nothing outside of the attempt's directory is touched.
func (s *Spoke) removeSecrets(dir string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return // it has no directory
	}
	defer root.Close()
	if err := root.RemoveAll(filepath.Join(homeDir, secretsDir)); err != nil {
		s.Log.Warn("removing the secrets of an attempt that is over; they go with its directory", "directory", dir, "err", err)
	}
}
