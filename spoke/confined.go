package spoke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/runtime"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
)

// confinedDir is where, beside the control files of an attempt, those of a program are that looks at what its agent has left.
const confinedDir = "collect"

// confinedOutput is how much of what such a program writes is kept, of each stream.
const confinedOutput = 64 << 10

// runConfined runs a program on what an agent has left, once that is over, as the agent was confined: with its user, in its
// directories, with nothing of the host beyond what every agent may read, and no port to connect to where its level restricts those. Whatever
// the agent has put there to be executed gets no further than the agent. The error says what the program has said where it did not end with exit
// code 0. Where ctx ends first it is ended, unless this process stops: then it ends when its time is over.
func (s *Spoke) runConfined(ctx context.Context, r *run, argv []string, within time.Duration) error {
	dir := filepath.Join(r.dir, confinedDir)
	if err := s.endConfined(ctx, r, dir); err != nil {
		return err
	}
	spec, err := s.confinedSpec(r, argv, within)
	if err != nil {
		return err
	}
	at, err := runtime.OpenDirect(spec.Dir)
	if err != nil {
		return err
	}
	defer at.Close()
	spec.Opened = at.File()
	agent, err := supervisor.Start(ctx, dir, spec)
	if err != nil {
		return fmt.Errorf("starting %s as the agent was confined: %w", filepath.Base(argv[0]), err)
	}
	select {
	case <-agent.Done():
		return errors.Join(s.confinedEnd(dir, argv, agent.Exit()), agent.Close())
	case <-ctx.Done():
		if why := gaveUp(ctx); why != nil {
			s.endNow(context.WithoutCancel(ctx), r, agent, why)
		}
		return errors.Join(ctx.Err(), agent.Close())
	case <-r.leave:
		return errors.Join(errLeft, agent.Close())
	}
}

// endNow ends a program that nobody waits for any more. What of it does not end at once its shim ends when its time is over.
func (s *Spoke) endNow(ctx context.Context, r *run, agent *supervisor.Agent, why error) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	if err := agent.Kill(ctx, why.Error(), 0); err != nil {
		s.Log.WarnContext(ctx, "ending a program that collects what an agent has left; it ends when its time is over", "id", r.fence.Task, "attempt", r.fence.Attempt, "err", err)
		return
	}
	select {
	case <-agent.Done():
	case <-ctx.Done():
	}
}

// quietGit keeps git from fetching what a repository lacks, by whatever program that names, and from the configuration of users.
var quietGit = []string{"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0"}

func (s *Spoke) confinedSpec(r *run, argv []string, within time.Duration) (supervisor.Spec, error) {
	rules, own := s.Policy.Now(), r.own()
	spec := supervisor.Spec{
		Argv: argv, Dir: own.Work,
		Env:     append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + own.Home, "TMPDIR=" + own.Temp, "LC_ALL=C"}, quietGit...),
		Timeout: within, Deadline: supervisor.Boottime().Add(within), Grace: time.Second,
		OutputCap: confinedOutput, Limits: limitsOf(rules), Counted: r.counted(),
	}
	spec.Limits.Idle = 0
	if r.level == commands.IsolationNone {
		return spec, nil
	}
	var err error
	spec.Confine, err = s.isolates.Again(r.level, r.user, own)
	return spec, err
}

// confinedEnd is what came of a program, nil where it ended with exit code 0.
func (s *Spoke) confinedEnd(dir string, argv []string, x supervisor.Exit) error {
	if x.Outcome == supervisor.Exited && x.Code == 0 {
		return nil
	}
	why := fmt.Sprintf("it ended with exit code %d", x.Code)
	if x.Outcome != supervisor.Exited {
		why = fmt.Sprintf("%s: %s", x.Outcome, cmp.Or(x.Reason, x.Signal))
	}
	if out, err := describeOutput(dir, supervisor.Stderr, x.Stderr, confinedOutput); err == nil && out.Tail != "" {
		why += ": " + commands.Clean(strings.TrimSpace(out.Tail), 500)
	}
	return fmt.Errorf("%s, as the agent was confined: %s", filepath.Base(argv[0]), why)
}

// endConfined ends what an earlier process has begun there, and removes what is known of it.
func (s *Spoke) endConfined(ctx context.Context, r *run, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("looking for what an earlier process has begun: %w", err)
	}
	agent, _, err := supervisor.Adopt(ctx, dir, supervisor.Known{User: r.user, OutputCap: confinedOutput})
	if err == nil && agent != nil {
		if err = agent.Kill(ctx, "it is done again", 0); err == nil {
			<-agent.Done()
			err = agent.Close() // its shim is done with the directory
		}
	}
	if err != nil {
		return fmt.Errorf("ending what an earlier process has begun: %w", err)
	}
	return supervisor.RemoveAll(dir)
}
