package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/git"
	"github.com/spawnmesh/spawnmesh/internal/tartree"
)

// A largeFile is one of --file that has no room in the order.
type largeFile struct {
	pair, src string
	file      commands.File
}

// A parcel is an input that is sent to the hub before the order that names it.
type parcel struct {
	commands.Input
	named string // as on the command line
	base  string // the name of the directory
	more  string // what it has, in words
	notes []string
	file  *os.File // the bytes, from the beginning
}

// pack makes parcels of what was named. They are to be closed also where there is an error.
func (f *spawnFlags) pack(ctx context.Context, now func(what string)) (list []parcel, err error) {
	if f.dirty && len(f.with) == 0 {
		return nil, misuse("--dirty is about the repositories of --with, and none is given").Hinting("add --with . for the one you are in")
	}
	repositories := 0
	for i, text := range f.with {
		now("reading " + text)
		p := parcel{named: text}
		err := p.directory(ctx, f.dirty)
		list = append(list, p)
		if err != nil {
			return list, unpacked(ctx, "--with "+commands.Clip(text), err)
		}
		if i > 0 {
			list[i].Path = p.base
		}
		if p.Kind == commands.InputGit {
			repositories++
		}
	}
	if f.dirty && repositories == 0 {
		return list, misuse("--dirty is about repositories of git, and %s is in none", f.with[0]).Hinting("leave it out: of a plain directory all files are sent")
	}
	for _, l := range f.large {
		now("reading " + l.src)
		p := parcel{named: l.src, Input: commands.Input{Kind: commands.InputFile, Path: l.file.Path, Exec: l.file.Exec}}
		err := p.open(ctx, l.src)
		list = append(list, p)
		if err != nil {
			return list, unpacked(ctx, "--file "+commands.Clip(l.pair), err)
		}
	}
	return list, nil
}

// unpacked says what could not be read, and that nothing was ordered.
func unpacked(ctx context.Context, flag string, err error) error {
	if _, said := errors.AsType[*commands.Refused](err); said || ctx.Err() != nil {
		return err
	}
	return misuse("%s: %v; nothing was ordered", flag, err)
}

// directory makes a bundle of the repository that a directory is in, or a stream of what it has where it is in none.
func (p *parcel) directory(ctx context.Context, dirty bool) error {
	path, ref, err := withRef(p.named)
	if err != nil {
		return err
	}
	g, err := git.Find(ctx)
	var r *git.Repository
	switch {
	case err == nil:
		r, err = g.Operator().Describe(ctx, path)
	case !below(path, ".git"): // it is not needed
		err = git.ErrNoRepository
	}
	switch {
	case err == nil:
		return p.bundle(ctx, g, r, path, ref, dirty)
	case !errors.Is(err, git.ErrNoRepository):
		return err
	case ref != "":
		return misuse("--with %s: %s is in no repository of git, so it has no commit %q", commands.Clip(p.named), path, commands.Clip(ref)).Hinting("leave out @ and what is behind it")
	}
	p.Kind = commands.InputTar
	p.base, err = baseOf(path)
	if err == nil {
		err = p.write(func(w io.Writer) error {
			left, err := tartree.Tar(ctx, path, w)
			p.without(left, "is a symbolic link that leads out of it, and stays here")
			return err
		})
	}
	return err
}

func (p *parcel) bundle(ctx context.Context, g *git.Git, r *git.Repository, path, ref string, dirty bool) (err error) {
	p.Kind = commands.InputGit
	var in git.Input
	if err := p.write(func(w io.Writer) (err error) {
		in, err = g.BundleTree(ctx, path, ref, dirty, w)
		return err
	}); err != nil {
		return err
	}
	p.Tip, p.Origin, p.more = in.Tip, in.Origin, "commit "+in.Tip[:12]
	if in.Changed > 0 {
		p.more = "with " + amount(int64(in.Changed), "uncommitted file")
		p.more = "commit " + in.Origin[:12] + ", " + p.more
	}
	if in.Behind > 0 {
		p.notes = append(p.notes, "not sent: "+amount(int64(in.Behind), "uncommitted file")+" of "+p.named+"; with --dirty they are")
	}
	p.without(in.Without, "is a repository of its own, and stays here")
	where := r.Top
	if where == "" {
		where = strings.TrimSuffix(r.GitDir, ".git")
	}
	p.base, err = baseOf(where)
	return err
}

// without notes what is not in it.
func (p *parcel) without(names []string, why string) {
	const most = 3
	for i, name := range names {
		if i == most {
			p.notes = append(p.notes, fmt.Sprintf("that is so of %d more", len(names)-most))
			return
		}
		p.notes = append(p.notes, filepath.Join(p.named, name)+" "+why)
	}
}

// baseOf is the name by which an agent finds a directory.
func baseOf(path string) (string, error) {
	path, err := filepath.Abs(path)
	return filepath.Base(path), err
}

// below reports whether a directory, or one that it is in, has something of a name.
func below(path, name string) bool {
	path, err := filepath.Abs(path)
	for err == nil {
		if _, err := os.Lstat(filepath.Join(path, name)); err == nil {
			return true
		}
		if path == filepath.Dir(path) {
			break
		}
		path = filepath.Dir(path)
	}
	return false
}

// withRef parts PATH[@REF]: a path may have an @, too.
func withRef(text string) (path, ref string, err error) {
	is := func(path string) bool { info, err := os.Stat(path); return err == nil && info.IsDir() }
	if is(text) {
		return text, "", nil
	}
	for i := range len(text) {
		if text[i] == '@' && i+1 < len(text) && is(text[:i]) {
			return text[:i], text[i+1:], nil
		}
	}
	if _, err := os.Stat(text); err == nil {
		return "", "", misuse("--with %s: it is no directory", commands.Clip(text)).Hinting("send a file with --file %s:%s", commands.Clip(text), commands.Clip(filepath.Base(text)))
	}
	return "", "", misuse("--with %s: there is no such directory", commands.Clip(text)).Hinting("write --with PATH, or --with PATH@REF for a commit of the repository there, as in .@main")
}

// write writes the bytes of p into a file that nobody else can open, and that is gone with this process.
func (p *parcel) write(to func(w io.Writer) error) (err error) {
	if p.file, err = os.CreateTemp("", "spawnmesh-input-"); err != nil {
		return err
	}
	if err := os.Remove(p.file.Name()); err != nil {
		return err
	}
	sum := sha256.New()
	buf := bufio.NewWriterSize(io.MultiWriter(p.file, sum), 256<<10)
	if err := to(buf); err != nil {
		return err
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	p.Digest = "sha256-" + hex.EncodeToString(sum.Sum(nil))
	p.Size, err = p.rewind()
	return err
}

// open takes a file as it is. Where it changes until it is sent, the digest says so.
func (p *parcel) open(ctx context.Context, path string) (err error) {
	if p.file, err = os.Open(path); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := until(ctx, func() (int64, error) { return io.Copy(sum, p.file) }); err != nil {
		return err
	}
	p.Digest = "sha256-" + hex.EncodeToString(sum.Sum(nil))
	p.Size, err = p.rewind()
	return err
}

// rewind goes to the beginning, and returns how much was behind.
func (p *parcel) rewind() (size int64, err error) {
	if size, err = p.file.Seek(0, io.SeekCurrent); err == nil {
		_, err = p.file.Seek(0, io.SeekStart)
	}
	return size, err
}

func (p *parcel) close() {
	if p.file != nil {
		_ = p.file.Close() // it was read only, or is gone
	}
}

// String says what is sent.
func (p *parcel) String() string {
	text := fmt.Sprintf("input %s is %s, %s", p.named, p.Digest, commands.SizeInWords(p.Size))
	if p.more != "" {
		text += ", " + p.more
	}
	if p.Path != "" {
		text += "; the agent finds it at " + p.Path
	}
	return text
}
