package spoke

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/isolation"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/store"
)

// The values of an order's environment are sealed in the database of a spoke as they were on
// the way. They are opened when an order is judged and when an attempt starts, and are then
// in the memory of this process, of the shim and of the agent.

// secretsDir is where, in the home of an agent, the files are that hold values for it.
const secretsDir = ".secrets"

// LeastSecret is how many bytes a secret has at least that is taken out of output.
const LeastSecret = runtime.LeastSecret

// Hides reports whether a secret is taken out of what its agent writes.
func Hides(secret string) bool { return runtime.Hides(secret) }

// A environment is what the variables of one spawn are set to.
type environment struct {
	vars    map[string]string
	files   map[string]string // contents of files, by the name of their variable
	secrets []string          // values that are taken out of the agent's output
}

// openEnvironment opens the values of s, which command brought over conn. The files that it
// has values in are in home.
func (s *Spoke) openEnvironment(spawn *commands.Spawn, conn, command, home string) (environment, error) {
	e := environment{vars: map[string]string{}, files: map[string]string{}}
	values, err := spawn.Values(s.Keys.Decrypter, commands.ValuesPlace(s.DB.Self(), conn, command))
	if err != nil {
		return e, err
	}
	for i, v := range spawn.Env {
		value := values[i].Reveal()
		e.vars[v.Name] = value
		switch v.As {
		case commands.EnvFile:
			e.vars[v.Name], e.files[v.Name] = filepath.Join(home, secretsDir, v.Name), value
			e.secrets = append(e.secrets, value)
		case commands.EnvSecret:
			e.secrets = append(e.secrets, value)
		}
	}
	return e, nil
}

// environmentOf opens the values of an attempt.
func (s *Spoke) environmentOf(r *run) (environment, error) {
	return s.openEnvironment(&r.spec, r.asker, r.asked.Command, r.own().Home)
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

// writeFiles puts values into files of a home that no agent has had yet.
func (e environment) writeFiles(d isolation.Dirs) error {
	if len(e.files) == 0 {
		return nil
	}
	home, err := os.OpenRoot(d.Home)
	if err != nil {
		return fmt.Errorf("writing the secrets of an agent: %w", err)
	}
	defer home.Close()
	if err := home.MkdirAll(secretsDir, 0o700); err != nil {
		return fmt.Errorf("writing the secrets of an agent: %w", err)
	}
	for name, value := range e.files {
		if err := home.WriteFile(filepath.Join(secretsDir, name), []byte(value), 0o600); err != nil {
			return fmt.Errorf("writing the secret %s of an agent: %w", name, err)
		}
	}
	return nil
}

// giveFiles makes the files a user's own, before its agent runs.
func (e environment) giveFiles(d isolation.Dirs, user int64) error {
	if len(e.files) == 0 || user == 0 {
		return nil
	}
	home, err := os.OpenRoot(d.Home)
	if err != nil {
		return fmt.Errorf("giving an agent its secrets: %w", err)
	}
	defer home.Close()
	paths := []string{secretsDir}
	for name := range e.files {
		paths = append(paths, filepath.Join(secretsDir, name))
	}
	for _, path := range paths {
		if err := home.Lchown(path, int(user), int(user)); err != nil {
			return fmt.Errorf("giving an agent its secrets: %w", err)
		}
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
