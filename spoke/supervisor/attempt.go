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
)

// The files of an attempt directory. All are 0600 in a directory of 0700.
const (
	specFile      = "spec.json" // what was asked for, and the secret; written before the shim starts
	lockFile      = "lock"      // held by flock: the shim is alive
	tombstoneFile = "tombstone" // no shim may start here any more
	socketFile    = "sock"
	exitFile      = "exit.json"
	exitDraft     = "exit.json.tmp" // becomes the former
	cgroupLink    = "cgroup"        // symbolic link to the attempt's cgroup
	shimErrFile   = "shim.err"      // what the shim itself had to say
)

// An attempt is what is kept in spec.json.
type attempt struct {
	Spec
	// Token proves both ends of the socket to each other. Whoever can read
	// the directory has it, and nobody else.
	Token string `json:"token"`
	// BootID names the run of the kernel the attempt belongs to.
	BootID string `json:"boot_id"`
}

// newAttempt writes spec.json. It is not synced: after a loss of power the
// attempt is over whatever the file says, and the row in the database is what
// must last. A directory serves one attempt, so the file must be new.
func newAttempt(dir string, spec Spec) (attempt, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return attempt{}, fmt.Errorf("making the attempt directory: %w", err)
	}
	boot, err := bootID()
	if err != nil {
		return attempt{}, err
	}
	a := attempt{Spec: spec, Token: rand.Text(), BootID: boot}
	a.Env = nil
	b, err := json.Marshal(a)
	if err != nil {
		return attempt{}, fmt.Errorf("encoding the spec: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, specFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return attempt{}, fmt.Errorf("writing the spec: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return attempt{}, fmt.Errorf("writing the spec: %w", err)
	}
	a.Env = spec.Env
	return a, nil
}

// readAttempt returns an attempt with nothing but its marker when there is no
// whole spec.json. The file is complete before a shim starts; but its agent may
// have removed it since.
func readAttempt(dir string) (attempt, error) {
	b, err := readPlain(filepath.Join(dir, specFile), maxSpec)
	if err != nil && !errors.Is(err, errSpoilt) {
		return attempt{}, fmt.Errorf("reading the spec: %w", err)
	}
	var a attempt
	if json.Unmarshal(b, &a) != nil || !validMarker(a.Marker) || a.Token == "" {
		return attempt{Spec: Spec{Marker: markerOf(dir)}}, nil
	}
	return a, nil
}

func newMarker() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// markerOf returns the marker of the attempt in dir, which is told by the path: it
// finds the tree also when the agent has removed what is written there.
func markerOf(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:16])
}

// validMarker guards the one place where text becomes the name of a cgroup.
func validMarker(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 16 && s == strings.ToLower(s)
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
