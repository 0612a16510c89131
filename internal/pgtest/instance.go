package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/store/postgres"
)

const (
	dirPrefix = "spawnmesh-pgtest-"
	memory    = "/dev/shm"
	enough    = 1 << 30 // bytes; a container often has only 64 MB there, two clusters' worth
	plenty    = 4 << 30 // a spoke takes no new work on less than one
)

// An instance is a private server in a directory of its own, which is removed with it.
type instance struct {
	dir     string
	lock    *postgres.InstanceLock
	cluster *postgres.Cluster
	owner   *pgxpool.Pool // makes and drops databases: a connection for each of them would cost as much again
}

// start starts a server with the programs in binDir, or those it finds when that is empty.
func start(ctx context.Context, binDir string) (*instance, error) {
	base := baseDir()
	sweep(base)
	dir, err := os.MkdirTemp(base, dirPrefix)
	if err != nil {
		return nil, err
	}
	lock, err := postgres.Lock(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cfg := postgres.Config{Dir: dir, BinDir: binDir, Settings: map[string]string{"max_connections": "200"}}
	if err := postgres.Upkeep(ctx, cfg, AdminSQL); err != nil {
		return nil, errors.Join(err, lock.Close(), os.RemoveAll(dir))
	}
	cluster, err := postgres.Start(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, lock.Close(), os.RemoveAll(dir))
	}
	owner, err := pgxpool.New(context.WithoutCancel(ctx), Admin(cluster.URL()))
	if err != nil {
		return nil, errors.Join(err, cluster.Close(ctx), lock.Close(), os.RemoveAll(dir))
	}
	return &instance{dir, lock, cluster, owner}, nil
}

// end stops the server and removes everything. A failed server is an error too: its tests may have passed for the
// wrong reason.
func (i *instance) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	i.owner.Close()
	err := errors.Join(i.cluster.Err(), i.cluster.Close(ctx))
	return errors.Join(err, i.lock.Close(), os.RemoveAll(i.dir))
}

// InMemory lets a test binary and the programs it starts keep temporary files in memory, if there is enough of it and
// programs may run there: what tests check outlives processes and no machine, and they would wait for a disk a lot.
func InMemory() error {
	if os.Getenv("TMPDIR") != "" || memoryLeft() < plenty || !mayRunPrograms(memory) {
		return nil
	}
	return os.Setenv("TMPDIR", memory)
}

// baseDir returns where clusters go: memory if there is enough of it.
func baseDir() string {
	if memoryLeft() < enough {
		return os.TempDir()
	}
	return memory
}

// memoryLeft returns how many bytes we may write to memory.
func memoryLeft() uint64 {
	var fs unix.Statfs_t
	if unix.Statfs(memory, &fs) != nil || unix.Access(memory, unix.W_OK) != nil {
		return 0
	}
	return uint64(fs.Bavail) * uint64(fs.Bsize)
}

func mayRunPrograms(dir string) bool {
	var fs unix.Statfs_t
	const noexec = 8 // MS_NOEXEC of Linux, the one system that has this directory
	return unix.Statfs(dir, &fs) == nil && fs.Flags&noexec == 0
}

// sweep removes the directories of test binaries that were killed. One that was made a moment ago may not be locked
// yet.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*")) // fails only on a malformed pattern
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if lock, err := postgres.Lock(dir); err == nil {
			_ = errors.Join(os.RemoveAll(dir), lock.Close()) // somebody else's: it may refuse
		}
	}
}
