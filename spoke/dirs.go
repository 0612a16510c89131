package spoke

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spawnmesh/spawnmesh/spoke/isolation"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The directories of an attempt, in one of its own. The first is this program's; the
// agent gets the others.
const (
	controlDir = "control" // what shim and spoke keep of it, and its output
	workDir    = "work"    // where it runs, unless its order names another directory
	tmpDir     = "tmp"     // TMPDIR
	homeDir    = "home"    // HOME, unless the policy names another directory
	doorDir    = "door"    // by which it talks to its spoke; it is not the agent's
)

// attemptDir is the directory of an attempt.
func (s *Spoke) attemptDir(f backlog.Fence) string {
	return filepath.Join(agentDir(s.Dir, f.Task), strconv.Itoa(f.Attempt))
}

// agentDir is the directory of all attempts of a task.
func agentDir(dataDir, task string) string { return filepath.Join(dataDir, "agents", task) }

// ControlDir is where the output and the record of an attempt are.
func ControlDir(attempt string) string { return filepath.Join(attempt, controlDir) }

func (r *run) control() string { return ControlDir(r.dir) }

// own are the directories of its agent.
func (r *run) own() isolation.Dirs {
	return isolation.Dirs{Work: filepath.Join(r.dir, workDir), Temp: filepath.Join(r.dir, tmpDir), Home: filepath.Join(r.dir, homeDir), Door: filepath.Join(r.dir, doorDir)}
}

// makeDirs makes the directories of an attempt. Those that an earlier process has made
// may be there.
func (r *run) makeDirs() error {
	if err := isolation.MakeDirs(r.level, r.dir, r.own()); err != nil {
		return err
	}
	for _, dir := range []string{r.control(), r.own().Door} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making the directory of an attempt: %w", err)
		}
	}
	return nil
}
