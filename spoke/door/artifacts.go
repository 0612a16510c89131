package door

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
)

// maxArtifact bounds the artifacts of one word, in bytes together.
const maxArtifact = 256 << 20

// describe reads files of the agent's working directory, in its turn. No link leads out of that.
func (d *Door) describe(ctx context.Context, list []Named) (out []commands.Artifact, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	if len(list) > commands.MaxArtifacts {
		return nil, commands.Refuse(commands.Validation, "%d artifacts are named, limit %d", len(list), commands.MaxArtifacts)
	}
	leave := d.takeTurn(ctx)
	if leave == nil {
		return nil, ctx.Err()
	}
	defer leave()
	work, done, err := d.room.Work.open()
	if err != nil {
		return nil, err
	}
	defer done()
	left := int64(maxArtifact)
	for _, f := range list {
		path, err := work.inside(f.Path)
		if err != nil {
			return nil, err
		}
		a := commands.Artifact{Name: f.Name, Path: path}
		if err := a.CheckNames(); err != nil { // before they are looked at
			return nil, err
		}
		if d.room.Hide(path) != path || d.room.Hide(f.Name) != f.Name {
			return nil, commands.Refuse(commands.Validation, "the name or the path of an artifact has a secret of this agent").Hinting("give the file another name")
		}
		if a.Size, a.SHA256, err = d.digest(ctx, work.root, path, left); err != nil {
			return nil, err
		}
		left -= a.Size
		out = append(out, a)
	}
	return out, nil
}

// digest reads a file of the agent to its end, of up to so many bytes. The spoke may read more than the agent: a file that is
// not the agent's own is not read, wherever it is.
func (d *Door) digest(ctx context.Context, root *os.Root, path string, most int64) (size int64, sum string, err error) {
	before, err := root.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = commands.Refuse(commands.NotFound, "artifact %s: there is no such file in the working directory", commands.Clip(path)).Hinting("write the file first, and name it from there")
	case err != nil:
		err = commands.Refuse(commands.NotFound, "artifact %s cannot be reached inside of the working directory", commands.Clip(path)).Hinting("a link leads out of it, or a directory is closed: copy the file, and name the copy")
	default:
		err = d.agents(before, path)
	}
	if err != nil {
		return 0, "", err
	}
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe holds up nobody
	if err != nil {
		return 0, "", commands.Refuse(commands.NotFound, "artifact %s cannot be read", commands.Clip(path))
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil || !os.SameFile(before, now) || d.agents(now, path) != nil {
		return 0, "", replaced(path)
	}
	if now.Size() > most {
		return 0, "", tooMuch()
	}
	sum, err = d.sumOf(ctx, f, path, versionOf(now))
	return now.Size(), sum, err
}

// sumOf is the digest of a version of a file, which is read unless that was done before.
func (d *Door) sumOf(ctx context.Context, f *os.File, path string, v version) (string, error) {
	if sum, known := d.digests.of(v); known {
		return sum, nil
	}
	if err := d.digests.take(v.size); err != nil {
		return "", err
	}
	began := time.Now()
	read, sum, err := digestOf(ctx, f, path, v.size)
	d.digests.giveBack(v.size - read)
	if err != nil {
		return "", err
	}
	if after, err := f.Stat(); err == nil && versionOf(after) == v && v.settled(began) {
		d.digests.remember(v, sum)
	}
	return sum, nil
}

// digestOf reads a file of so many bytes. No more than was counted is read of one that grows.
func digestOf(ctx context.Context, f io.Reader, path string, size int64) (read int64, sum string, err error) {
	h := sha256.New()
	read, err = io.Copy(h, &until{ctx, io.LimitReader(f, size+1)})
	switch {
	case ctx.Err() != nil:
		return read, "", ctx.Err()
	case err != nil:
		return read, "", commands.Refuse(commands.Validation, "artifact %s cannot be read to its end", commands.Clip(path))
	case read != size:
		return read, "", replaced(path)
	}
	return read, hex.EncodeToString(h.Sum(nil)), nil
}

func replaced(path string) error {
	return commands.Refuse(commands.Conflict, "artifact %s was replaced meanwhile", commands.Clip(path)).Hinting("name it again once nobody writes it")
}

// agents checks that a file is a regular one, and the agent's own.
func (d *Door) agents(info fs.FileInfo, path string) error {
	if !info.Mode().IsRegular() {
		return commands.Refuse(commands.Validation, "artifact %s is no regular file", commands.Clip(path))
	}
	user := d.user
	if user == 0 { // it has none of its own
		user = os.Geteuid()
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != user {
		return commands.Refuse(commands.Validation, "artifact %s belongs to another user than the agent", commands.Clip(path)).Hinting("copy it, and name the copy")
	}
	return nil
}

func tooMuch() error {
	return commands.Refuse(commands.PayloadTooLarge, "the artifacts are larger than %s together", commands.SizeInWords(maxArtifact))
}

// until ends what is read with its context.
type until struct {
	ctx context.Context
	io.Reader
}

func (u *until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}
