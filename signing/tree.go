package signing

import (
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"strconv"
)

// MaxTree is how many messages one signature covers at most. From here on a message's
// share of the signature is less than what a longer path costs (decision 18).
const MaxTree = 64

// treeHead is the type under which the head of a tree is signed. No message has it, so
// what was signed as a head is no message, and no handshake.
const treeHead Type = "application/vnd.spawnmesh.tree.v2"

// A node is the hash of a leaf or of an inner node (RFC 9162, section 2.1.1).
type node [sha256.Size]byte

// leafOf is the leaf of a message: its type and its header, so nothing of either can be
// moved to the other. The first byte keeps leaves and inner nodes apart.
func leafOf(t Type, payload []byte) node {
	b := append(make([]byte, 0, 1+paeSize(t, payload)), 0)
	return sha256.Sum256(appendPAE(b, t, payload))
}

func parentOf(left, right node) node {
	var b [1 + 2*sha256.Size]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[1+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

// A tree is the Merkle tree over a list of leaves (RFC 9162, section 2.1.1): the leaves,
// and above each level the hashes of its pairs. The last node of a level that has no
// neighbour goes up as it is.
type tree [][]node

func treeOf(leaves []node) tree {
	t := tree{leaves}
	for len(leaves) > 1 {
		up := make([]node, 0, (len(leaves)+1)/2)
		for i := 0; i+1 < len(leaves); i += 2 {
			up = append(up, parentOf(leaves[i], leaves[i+1]))
		}
		if len(leaves)%2 == 1 {
			up = append(up, leaves[len(leaves)-1])
		}
		t, leaves = append(t, up), up
	}
	return t
}

func (t tree) head() head { return head{len(t[0]), t[len(t)-1][0]} }

// path is the inclusion path of a leaf: the neighbours on its way to the root, the
// lowest one first (RFC 9162, section 2.1.3.1).
func (t tree) path(index int) []byte {
	var path []byte
	for _, level := range t[:len(t)-1] {
		if beside := index ^ 1; beside < len(level) {
			path = append(path, level[beside][:]...)
		}
		index /= 2
	}
	return path
}

// A place is where in which tree a message is: what it takes to find the root from it.
type place struct {
	size  int // of the tree, in leaves
	index int // from 0
	path  []byte
}

// valid reports whether there is such a leaf in a tree that may be.
func (p place) valid() bool {
	return p.size >= 1 && p.size <= MaxTree && p.index >= 0 && p.index < p.size
}

// length is how many bytes the path of a valid place has: a neighbour on each level up to
// the one where the leaf's way meets the tree's right edge, and above it only where that
// edge has one.
func (p place) length() int {
	low := bits.Len(uint(p.index ^ (p.size - 1)))
	return (low + bits.OnesCount(uint(p.index>>low))) * sha256.Size
}

// head is the head of the tree in which leaf has this place, whose path has its length
// (RFC 9162, section 2.1.3.2).
func (p place) head(leaf node) head {
	root, index, last := leaf, p.index, p.size-1
	for rest := p.path; len(rest) > 0; rest = rest[sha256.Size:] {
		for index == last && index&1 == 0 && last > 0 { // it went up without a neighbour
			index, last = index>>1, last>>1
		}
		if index&1 == 1 {
			root = parentOf(node(rest), root)
		} else {
			root = parentOf(root, node(rest))
		}
		index, last = index>>1, last>>1
	}
	return head{p.size, root}
}

// A head is what is signed of a tree.
type head struct {
	size int
	root node
}

// text is the size in decimal, a space, and the root in lower-case hex.
func (h head) text() []byte {
	b := strconv.AppendInt(make([]byte, 0, 5+2*sha256.Size), int64(h.size), 10)
	return hex.AppendEncode(append(b, ' '), h.root[:])
}

func (s *Signer) signHead(h head) []byte { return s.Sign(treeHead, h.text()) }
