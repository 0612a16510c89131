package worktree

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"
)

// Kinds of objects, as a pack has them.
const (
	kindCommit = 1
	kindTree   = 2
	kindBlob   = 3
)

var kindNames = map[int]string{kindCommit: "commit", kindTree: "tree", kindBlob: "blob"}

// level of compression: a third of the time of the usual one, for a tenth more bytes.
const level = 3

// An id is the name of an object, in bytes.
type id string

func (i id) String() string { return fmt.Sprintf("%x", string(i)) }

// A pack is objects in a file, in git's format, none of them by what it differs from another. It is an agent's files as they were
// read: what is wrong with it git finds when it takes it in.
type pack struct {
	file   *os.File
	out    *bufio.Writer
	zip    *zlib.Writer
	at     int64 // where the next object begins
	digits int   // of names of objects: 40 or 64
	has    map[id]bool
}

// errChanged says that a file had not as many bytes as its size said.
var errChanged = errors.New("it changed while it was read")

func newPack(file *os.File, digits int) *pack {
	p := &pack{file: file, digits: digits, has: map[id]bool{}}
	p.out = bufio.NewWriterSize(offset{p}, 256<<10)
	p.zip, _ = zlib.NewWriterLevel(p.out, level)
	return p
}

// offset writes where the pack ends: what was written of an object that is not to be is overwritten.
type offset struct{ p *pack }

func (o offset) Write(b []byte) (int, error) {
	n, err := o.p.file.WriteAt(b, o.p.at)
	o.p.at += int64(n)
	return n, err
}

func (p *pack) hash() hash.Hash {
	if p.digits == 64 {
		return sha256.New()
	}
	return sha1.New()
}

// sum begins the name of an object.
func (p *pack) sum(kind int, size int64) hash.Hash {
	h := p.hash()
	fmt.Fprintf(h, "%s %d\x00", kindNames[kind], size)
	return h
}

// name is the name of an object that is read, and not kept.
func (p *pack) name(kind int, size int64, r io.Reader) (id, error) {
	h := p.sum(kind, size)
	err := exactly(h, r, size)
	return id(h.Sum(nil)), err
}

// exactly copies size bytes, which have to be all.
func exactly(w io.Writer, r io.Reader, size int64) error {
	n, err := io.Copy(w, io.LimitReader(r, size+1))
	if err == nil && n != size {
		err = errChanged
	}
	return err
}

// add keeps an object. Where it cannot be read, or is there already, the pack is as before.
func (p *pack) add(kind int, size int64, r io.Reader) (id, error) {
	if err := p.out.Flush(); err != nil {
		return "", err
	}
	began := p.at
	h := p.sum(kind, size)
	head := []byte{byte(kind<<4) | byte(size&15)}
	for rest := size >> 4; rest > 0; rest >>= 7 {
		head[len(head)-1] |= 0x80
		head = append(head, byte(rest&0x7f))
	}
	_, err := p.out.Write(head)
	p.zip.Reset(p.out)
	if err == nil {
		err = exactly(io.MultiWriter(h, p.zip), r, size)
	}
	err = errors.Join(err, p.zip.Close(), p.out.Flush())
	name := id(h.Sum(nil))
	if err != nil || p.has[name] {
		p.at = began
		return name, err
	}
	p.has[name] = true
	return name, nil
}

// addText is add for what is in memory.
func (p *pack) addText(kind int, text []byte) (id, error) {
	return p.add(kind, int64(len(text)), bytes.NewReader(text))
}

// reader is the whole pack, with what stands before and behind the objects, and how many bytes these are.
func (p *pack) reader() (io.Reader, int64) {
	head := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(p.has)))
	h := p.hash()
	body := io.TeeReader(io.MultiReader(bytes.NewReader(head), io.NewSectionReader(p.file, 0, p.at)), h)
	return io.MultiReader(body, &trailer{sum: h}), int64(len(head)) + p.at + int64(h.Size())
}

// trailer is a sum of what was read until now.
type trailer struct {
	sum  hash.Hash
	text io.Reader
}

func (t *trailer) Read(b []byte) (int, error) {
	if t.text == nil {
		t.text = bytes.NewReader(t.sum.Sum(nil))
	}
	return t.text.Read(b)
}

// An entry is one of a tree.
type entry struct {
	mode string
	name string
	id   id
}

const (
	modeFile = "100644"
	modeExec = "100755"
	modeLink = "120000"
	modeTree = "40000"
	modeRepo = "160000" // of a submodule
)

// file reports whether it is one, or a link: what an agent may have changed.
func (e entry) file() bool { return e.mode != modeTree && e.mode != modeRepo && e.mode != "" }

// treeText is a tree of entries, as git has it.
func treeText(list []entry) []byte {
	key := func(e entry) string { // git compares directories as if their names ended with a slash
		if e.mode == modeTree {
			return e.name + "/"
		}
		return e.name
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(key(a), key(b)) })
	var text []byte
	for _, e := range list {
		text = append(append(append(append(append(text, e.mode...), ' '), e.name...), 0), e.id...)
	}
	return text
}

// readTree is the entries of a tree by name; digits are those of names of objects.
func readTree(text []byte, digits int) (map[string]entry, error) {
	list := map[string]entry{}
	for len(text) > 0 {
		head, rest, ok := bytes.Cut(text, []byte{0})
		mode, name, named := strings.Cut(string(head), " ")
		if !ok || !named || len(rest) < digits/2 {
			return nil, errors.New("a tree of the repository is damaged")
		}
		list[name] = entry{strings.TrimLeft(mode, "0"), name, id(rest[:digits/2])}
		text = rest[digits/2:]
	}
	return list, nil
}
