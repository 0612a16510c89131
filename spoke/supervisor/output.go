package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/attempt"
)

// cutNote ends the file of a stream whose shim is dead.
const cutNote = "\n[the shim was killed: what it had not stored yet is lost]\n"

// cutOutput completes the file of a stream whose shim is gone, and describes it. Of a
// file that is longer than most, which no shim writes, the rest is cut off. The caller
// holds the lock. An error is that of ctx: the file may be long.
func cutOutput(ctx context.Context, dir string, stream Stream, most int64) (Output, error) {
	out := Output{Cut: true}
	f, err := attempt.OpenPlain(filepath.Join(dir, string(stream)), unix.O_RDWR|unix.O_APPEND)
	if err != nil {
		return out, nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > most && f.Truncate(most) != nil {
		return out, nil
	}
	h := sha256.New()
	if out.Bytes, err = io.Copy(h, io.LimitReader(until{ctx, f}, most)); err != nil {
		return out, ctx.Err()
	}
	n, _ := f.WriteString(cutNote) // on a full disk the record alone says so
	h.Write([]byte(cutNote[:n]))
	out.Size, out.SHA256 = out.Bytes+int64(n), hex.EncodeToString(h.Sum(nil))
	return out, nil
}

// until reads as long as its context lasts.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u until) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}
