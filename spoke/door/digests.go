package door

import (
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

const (
	// maxDescribed bounds the artifacts of all that an agent says in one attempt: the spoke reads them, and not the agent.
	maxDescribed = 1 << 30
	// maxKnown bounds the files of an attempt whose digests are remembered.
	maxKnown = 4 * commands.MaxArtifacts
)

// digests are those of the files that an agent has named in an attempt. A file that did not change since is not read again.
type digests struct {
	mu    sync.Mutex
	read  int64 // bytes of files that were read, or are being read
	known map[version]string
}

// A version of a file is another one after each change of it. Its agent can set mtime, and not ctime.
type version struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

func versionOf(info fs.FileInfo) version {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return version{}
	}
	return version{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
}

// settled reports whether each change from an instant on makes another version. File systems count time in steps of some
// milliseconds, and a few in whole seconds.
func (v version) settled(from time.Time) bool {
	step := 100 * time.Millisecond
	if v.ctime.Nsec == 0 {
		step = 2 * time.Second
	}
	return from.Sub(time.Unix(v.ctime.Unix())) > step
}

// of is the digest of a version that was read before.
func (d *digests) of(v version) (sum string, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum, known = d.known[v]
	return sum, known
}

// take counts bytes that are to be read, unless they are too many.
func (d *digests) take(bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bytes > maxDescribed-d.read {
		return commands.Refuse(commands.PayloadTooLarge, "this agent has named artifacts of more than %s in this attempt", commands.SizeInWords(maxDescribed)).
			Hinting("say it again without those that are new or have changed; one that did not change since counts once")
	}
	d.read += bytes
	return nil
}

// giveBack takes bytes back that were not read.
func (d *digests) giveBack(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read -= bytes
}

// remember keeps the digest of a version. Of too many all are read again.
func (d *digests) remember(v version, sum string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known) >= maxKnown {
		d.known = map[version]string{}
	}
	d.known[v] = sum
}
