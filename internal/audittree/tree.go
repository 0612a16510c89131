package audittree

import (
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// A Reader returns the hashes at places of the stored tree. A place never changes once it has a hash.
type Reader func(places []int64) ([]Hash, error)

// Place is where the hash of a leaf is stored. Those behind it, up to the place of the next leaf, are of the
// subtrees that it completes.
func Place(leaf int64) int64 { return tlog.StoredHashIndex(0, leaf) }

// Append returns what a tree of size stores next for leaves, from Place(size) on.
func Append(size int64, leaves []Hash, read Reader) ([]Hash, error) {
	first := Place(size)
	var added []Hash
	known, err := frontier(size, read)
	if err != nil {
		return nil, err
	}
	both := tlog.HashReaderFunc(func(places []int64) ([]Hash, error) {
		list := make([]Hash, len(places))
		for i, p := range places {
			if p >= first {
				list[i] = added[p-first]
			} else {
				list[i] = known[p]
			}
		}
		return list, nil
	})
	for i, leaf := range leaves {
		stored, err := tlog.StoredHashesForRecordHash(size+int64(i), leaf, both)
		if err != nil {
			return nil, fmt.Errorf("adding leaf %d to the tree of the audit: %w", size+int64(i), err)
		}
		added = append(added, stored...)
	}
	return added, nil
}

// subtrees are the places of the whole subtrees that a tree of size is made of, the largest first.
func subtrees(size int64) (places []int64) {
	for at := int64(0); at < size; {
		level := bits.Len64(uint64(size-at)) - 1
		places = append(places, tlog.StoredHashIndex(level, at>>level))
		at += 1 << level
	}
	return places
}

// frontier are the hashes of [subtrees] by their places: no other one of before is needed to add to a tree of size.
func frontier(size int64, read Reader) (map[int64]Hash, error) {
	places := subtrees(size)
	list, err := read(places)
	if err != nil {
		return nil, err
	}
	known := make(map[int64]Hash, len(places))
	for i, p := range places {
		known[p] = list[i]
	}
	return known, nil
}

// Root is that of a tree of size.
func Root(size int64, read Reader) (Hash, error) {
	return tlog.TreeHash(size, tlog.HashReaderFunc(read))
}

// Prove is the proof that the tree of size to begins with that of size from, which is at least 1.
func Prove(from, to int64, read Reader) ([]Hash, error) {
	return tlog.ProveTree(to, from, tlog.HashReaderFunc(read))
}

// Extends reports whether proof shows that the tree of c begins with that of old.
func (c Checkpoint) Extends(old Checkpoint, proof []Hash) bool {
	switch {
	case old.Size == 0:
		return true
	case c.Size <= old.Size:
		return c.Size == old.Size && c.Root == old.Root
	}
	return tlog.CheckTree(proof, c.Size, c.Root, old.Size, old.Root) == nil
}

// A Growing is a tree that keeps of its leaves only what its root needs.
type Growing struct {
	Size int64
	top  []Hash // of whole subtrees, the largest first
}

// Continue is the stored tree of size.
func Continue(size int64, read Reader) (*Growing, error) {
	list, err := read(subtrees(size))
	return &Growing{Size: size, top: list}, err
}

// Add adds a leaf.
func (g *Growing) Add(leaf Hash) {
	h := leaf
	for n := g.Size; n&1 == 1; n >>= 1 {
		h = tlog.NodeHash(g.top[len(g.top)-1], h)
		g.top = g.top[:len(g.top)-1]
	}
	g.top = append(g.top, h)
	g.Size++
}

// Root is that of all leaves so far.
func (g *Growing) Root() Hash {
	if len(g.top) == 0 {
		root, _ := tlog.TreeHash(0, nil)
		return root
	}
	h := g.top[len(g.top)-1]
	for i := len(g.top) - 2; i >= 0; i-- {
		h = tlog.NodeHash(g.top[i], h)
	}
	return h
}
