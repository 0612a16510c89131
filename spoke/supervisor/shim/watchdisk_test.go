package shim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/disk"
)

// It is looked again before what is left can be taken.
func TestWhenFileSystemsAreLookedAt(t *testing.T) {
	t.Parallel()
	for want, w := range map[time.Duration]diskWatch{
		10 * time.Second: {most: disk.Usage{Bytes: 1 << 40, Inodes: 1 << 30}},
		8 * time.Second:  {most: disk.Usage{Bytes: 64 << 30}},
		4 * time.Second:  {most: disk.Usage{Bytes: 64 << 30}, may: disk.Usage{Bytes: 32 << 30}},
		6 * time.Second:  {most: disk.Usage{Bytes: 1 << 40, Inodes: 4_000_000}, may: disk.Usage{Inodes: 1_000_000}},
		2 * time.Second:  {most: disk.Usage{Inodes: 10}, may: disk.Usage{Inodes: 1000}},
	} {
		require.Equal(t, want, w.again())
	}
}

// Files are counted when they may have become too many, and else now and then.
func TestWhenFilesAreCounted(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	known := diskWatch{most: disk.Usage{Bytes: 10 * gib, Inodes: 1000}, last: disk.Usage{Bytes: 2 * gib, Inodes: 100}, used: disk.Usage{Bytes: 100 * gib, Inodes: 50_000}, whole: true, costs: time.Millisecond}
	tests := map[string]struct {
		before time.Duration // since the last count; 0 = never
		costs  time.Duration
		used   disk.Usage
		part   bool // not all is told of the file systems
		due    bool
	}{
		"never counted":                     {0, 0, known.used, false, true},
		"nothing has changed":               {2 * time.Second, time.Millisecond, known.used, false, false},
		"it cannot be too much yet":         {2 * time.Second, time.Millisecond, disk.Usage{Bytes: 108 * gib, Inodes: 50_900}, false, false},
		"it may be too many bytes":          {2 * time.Second, time.Millisecond, disk.Usage{Bytes: 108*gib + 1, Inodes: 50_000}, false, true},
		"it may be too many files":          {2 * time.Second, time.Millisecond, disk.Usage{Bytes: 100 * gib, Inodes: 50_901}, false, true},
		"others may hide it":                {31 * time.Second, time.Millisecond, disk.Usage{Bytes: 1, Inodes: 1}, false, true},
		"nothing is told":                   {2 * time.Second, time.Millisecond, known.used, true, true},
		"a million files":                   {31 * time.Second, 2 * time.Second, known.used, false, false},
		"a million files, after a while":    {101 * time.Second, 2 * time.Second, known.used, false, true},
		"a million files, and it may be":    {21 * time.Second, 2 * time.Second, disk.Usage{Bytes: 109 * gib}, false, true},
		"a million files, and it may be so": {19 * time.Second, 2 * time.Second, disk.Usage{Bytes: 109 * gib}, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := known
			w.costs = tt.costs
			if tt.before > 0 {
				w.at = ago(tt.before)
			}

			require.Equal(t, tt.due, w.due(tt.used, !tt.part))
		})
	}
}
