package supervisor

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/shim"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor/tree"
)

// A savedSpec is what is kept in spec.json. Its agent can write to that: of what is
// read there only the token counts.
type savedSpec struct {
	attempt.Attempt

	bootID string // as [Known.BootID]
	shim   Shim
	seen   witness
	former int64 // as [Known.Former]
}

// tree is what is left of the attempt, whose shim is dead.
func (s savedSpec) tree(group *tree.Group) *tree.Tree {
	return tree.New(s.Marker, 0, group).As(s.Confine.User).Former(s.former)
}

// A Known is what the caller has on record of an attempt that it adopts, in a
// place that agents do not write to.
type Known struct {
	// Marker is that of the Spec. Empty = the one that the directory tells.
	Marker string
	// BootID names the run of the kernel that the agent was started in, as
	// /proc/sys/kernel/random/boot_id does. Of an attempt of another run nothing
	// is looked for. Empty = not known: everything is looked for.
	BootID string
	// Timeout is that of the Spec: an agent whose shim does not end it in time is
	// ended. 0 = never.
	Timeout time.Duration
	// OutputCap is that of the Spec: of a longer file no more is looked at.
	OutputCap int64
	// Shim is that of [Agent.Shim]: nobody else is taken for it. Zero = not known:
	// whoever was started as a shim of this attempt is.
	Shim Shim
	// User is that of the Spec: whatever runs as it is of the attempt. Zero = the agent
	// has none of its own.
	User attempt.User
	// Former is a user that the agent may have where User is zero, and that may be another's by now: while
	// anything runs as it the attempt is not over, and only that is ended which has the marker. 0 = none.
	Former int64
	// Began says that the agent was started, Killed that its kill was ordered or may have been, Over
	// that its time was over or may have been: a record that says so is not believed without.
	Began, Killed, Over bool
	// Found says that the directory was there before the attempt: its record counts
	// for nothing.
	Found bool
}

// Redacting returns what takes secrets out of a text as they are taken out of output: see [attempt.Spec].
func Redacting(secrets []string) func(text string) string { return shim.Redacting(secrets) }

// saveSpec writes spec.json. It is not synced: after a loss of power the
// attempt is over whatever the file says, and the row in the database is what
// must last. A directory serves one attempt, so the file must be new.
func saveSpec(dir string, spec Spec) (savedSpec, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return savedSpec{}, fmt.Errorf("making the attempt directory: %w", err)
	}
	saved := savedSpec{Attempt: attempt.Attempt{Spec: spec, Token: rand.Text()}}
	saved.Env, saved.Secrets, saved.Stdin = nil, nil, ""
	b, err := json.Marshal(saved)
	if err != nil {
		return savedSpec{}, fmt.Errorf("encoding the spec: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, attempt.SpecFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return savedSpec{}, fmt.Errorf("writing the spec: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return savedSpec{}, fmt.Errorf("writing the spec: %w", err)
	}
	saved.Env, saved.Secrets = spec.Env, spec.Secrets
	return saved, nil
}

// saved is what is known without the directory.
func (known Known) saved() savedSpec {
	return savedSpec{Attempt: attempt.Attempt{Spec: Spec{Marker: known.Marker, Timeout: known.Timeout, OutputCap: known.OutputCap, Confine: attempt.Confine{User: known.User}}}, bootID: known.BootID, shim: known.Shim, former: known.Former,
		seen: witness{began: known.Began || known.Found, killed: known.Killed, over: known.Over, broken: known.Found}}
}

// readSpec returns what is known, with its token, which is empty when
// there is no whole spec.json. The file is complete before a shim starts; but its
// agent may have changed it since.
func readSpec(dir string, known Known) (savedSpec, error) {
	saved := known.saved()
	b, err := attempt.ReadPlain(filepath.Join(dir, attempt.SpecFile), attempt.MaxAttempt)
	if err != nil && !errors.Is(err, attempt.ErrSpoilt) {
		return saved, fmt.Errorf("reading the spec: %w", err)
	}
	var kept struct {
		Token string `json:"token"`
	}
	if json.Unmarshal(b, &kept) == nil {
		saved.Token = kept.Token
	}
	return saved, nil
}

func newMarker() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// MarkerOf returns the marker of the attempt that has a name: the same at any
// time, so that it finds the tree whatever was lost since.
func MarkerOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// markerOf returns the marker of the attempt in dir, of which nothing else is known.
func markerOf(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return MarkerOf(dir)
}

// BootID names this run of the kernel.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
