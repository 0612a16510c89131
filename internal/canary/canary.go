// Package canary makes values that are found again wherever they leak to, and looks for them.
package canary

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Canary is a random value, and all that it may look like when it was encoded once or
// twice on its way.
type Canary struct {
	Value string
	forms [][]byte
}

// New returns a canary of 24 random bytes, as text.
func New() *Canary {
	raw := make([]byte, 24)
	rand.Read(raw)
	return Of(base64.RawURLEncoding.EncodeToString(raw))
}

// Of returns the canary that value is, of four bytes or more.
func Of(value string) *Canary {
	once := encoded([]byte(value))
	all := append([][]byte{[]byte(value)}, once...)
	for _, form := range once {
		all = append(all, encoded(form)...)
	}
	return &Canary{value, all}
}

// encoded returns what b looks like within a text that was encoded: in base64 at each of the
// three places that it can begin at, and in hex.
func encoded(b []byte) (list [][]byte) {
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 {
			text := enc.EncodeToString(append(make([]byte, shift), b...))
			from, to := (8*shift+5)/6, 8*(shift+len(b))/6 // what b alone decides
			list = append(list, []byte(text[from:to]))
		}
	}
	lower := hex.EncodeToString(b)
	return append(list, []byte(lower), []byte(strings.ToUpper(lower)))
}

// In reports whether data has the canary, as it is or encoded, also in what data has compressed
// with gzip.
func (c *Canary) In(data []byte) bool { return newSearch(c).in(data) }

// A search finds all forms of some canaries in one pass.
type search struct {
	pairs [1 << 16]bool       // which two bytes a form begins with
	forms map[uint32][][]byte // by the four bytes that they begin with
}

func newSearch(list ...*Canary) *search {
	s := &search{forms: map[uint32][][]byte{}}
	for _, c := range list {
		for _, form := range c.forms {
			s.pairs[binary.LittleEndian.Uint16(form)] = true
			first := binary.LittleEndian.Uint32(form)
			s.forms[first] = append(s.forms[first], form)
		}
	}
	return s
}

func (s *search) in(data []byte) bool {
	for ; len(data) >= 4; data = data[1:] {
		switch pair := binary.LittleEndian.Uint16(data); {
		case s.pairs[pair] && slices.ContainsFunc(s.forms[binary.LittleEndian.Uint32(data)], func(form []byte) bool { return bytes.HasPrefix(data, form) }):
			return true
		case pair == 0x8b1f && data[2] == 8: // as gzip begins
			if r, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
				plain, _ := io.ReadAll(io.LimitReader(r, 1<<30)) // as far as it goes
				if s.in(plain) {
					return true
				}
			}
		}
	}
	return false
}

// Files returns which files below dir have one of the canaries, in content or name. Those below
// a path that but accepts are left out. What is removed meanwhile is no file.
func Files(dir string, but func(path string) bool, list ...*Canary) (hits []string, err error) {
	all := newSearch(list...)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("looking for canaries: %w", err)
		case but != nil && but(path):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		data := []byte(d.Name())
		if d.Type().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("looking for canaries: %w", err)
			}
			data = append(append(data, 0), content...)
		}
		if all.in(data) {
			hits = append(hits, path)
		}
		return nil
	})
	return hits, err
}

// Processes returns which processes show one of the canaries in their arguments or their
// environment, by pid, but for those that but accepts. It reads what this user may read.
func Processes(but func(pid string) bool, list ...*Canary) (hits []string, err error) {
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	all := newSearch(list...)
	for _, dir := range pids {
		pid := filepath.Base(dir)
		if but != nil && but(pid) {
			continue
		}
		for _, file := range []string{"cmdline", "environ", "comm"} {
			data, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue // it has ended, or is not dumpable
			}
			if all.in(data) {
				hits = append(hits, filepath.Join(dir, file))
			}
		}
	}
	return hits, nil
}
