package signing

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// The roots of the trees of the first n of eight leaves, as other implementations of
// Certificate Transparency give them.
func TestRootsAreThoseOfCertificateTransparency(t *testing.T) {
	var leaves []node
	for i, data := range []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"} {
		leaves = append(leaves, sha256.Sum256(append([]byte{0}, unhex(data)...)))
		want := []string{
			"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
			"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
			"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
			"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
			"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
			"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
			"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
			"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
		}[i]

		got := treeOf(leaves).head()

		require.Equal(t, want, hex.EncodeToString(got.root[:]))
		require.Equal(t, i+1, got.size)
	}
}

// rootOf and pathOf are the definitions of RFC 9162, sections 2.1.1 and 2.1.3.1, word for
// word: the tree is split at the largest power of two that is smaller than it.
func rootOf(leaves []node) node {
	if len(leaves) == 1 {
		return leaves[0]
	}
	k := split(len(leaves))
	return parentOf(rootOf(leaves[:k]), rootOf(leaves[k:]))
}

func pathOf(leaves []node, index int) []byte {
	if len(leaves) == 1 {
		return nil
	}
	k := split(len(leaves))
	beside, path := node{}, []byte(nil)
	if index < k {
		beside, path = rootOf(leaves[k:]), pathOf(leaves[:k], index)
	} else {
		beside, path = rootOf(leaves[:k]), pathOf(leaves[k:], index-k)
	}
	return append(path, beside[:]...)
}

func split(n int) int {
	k := 1
	for 2*k < n {
		k *= 2
	}
	return k
}

func someLeaves(n int) []node {
	leaves := make([]node, n)
	for i := range leaves {
		leaves[i] = sha256.Sum256(binary.BigEndian.AppendUint32(nil, uint32(i)))
	}
	return leaves
}

// Every leaf leads to the root from its own place, and from no other one.
func TestALeafHasOnePlace(t *testing.T) {
	for size := 1; size <= 66; size++ {
		leaves := someLeaves(size)
		made := treeOf(leaves)
		require.Equal(t, head{size, rootOf(leaves)}, made.head())
		for i, leaf := range leaves {
			own := place{size, i, made.path(i)}

			require.Equal(t, pathOf(leaves, i), own.path, "leaf %d of %d", i, size)
			require.Len(t, own.path, own.length(), "leaf %d of %d", i, size)
			require.Equal(t, made.head(), own.head(leaf), "leaf %d of %d", i, size)
			for j := range size {
				other := place{size, j, own.path}
				require.Equal(t, i == j, len(own.path) == other.length() && other.head(leaf) == made.head(), "leaf %d of %d as %d", i, size, j)
			}
		}
	}
}

// Another size is another head, also where the way to the root is the same.
func TestTheSizeIsSigned(t *testing.T) {
	p := treeOf(someLeaves(8)).path(0)
	leaf := someLeaves(1)[0]
	eight, five := place{8, 0, p}, place{5, 0, p}
	require.Equal(t, eight.length(), five.length())
	require.Equal(t, eight.head(leaf).root, five.head(leaf).root)

	require.NotEqual(t, eight.head(leaf).text(), five.head(leaf).text())
}

func TestTheLargestTree(t *testing.T) {
	leaves := someLeaves(MaxTree)
	made := treeOf(leaves)
	last := place{MaxTree, MaxTree - 1, made.path(MaxTree - 1)}

	require.True(t, last.valid())
	require.Len(t, last.path, 6*sha256.Size)
	require.Equal(t, made.head(), last.head(leaves[MaxTree-1]))
	require.False(t, place{size: MaxTree + 1}.valid())
	require.False(t, place{size: 3, index: 3}.valid())
	require.False(t, place{size: 3, index: -1}.valid())
	require.False(t, place{}.valid())
}

// A leaf and an inner node are never the same hash, whatever the leaf says.
func TestAnInnerNodeIsNoLeaf(t *testing.T) {
	leaves := someLeaves(2)
	inner := parentOf(leaves[0], leaves[1])
	asLeaf := sha256.Sum256(append([]byte{0}, bytes.Join([][]byte{leaves[0][:], leaves[1][:]}, nil)...))
	require.NotEqual(t, inner, node(asLeaf))
	require.Equal(t, node(sha256.Sum256([]byte("\x00DSSEv1 1 t 1 h"))), leafOf("t", []byte("h")))
}
