package signing

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"
)

func sum256(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// together is n messages of the hub in one tree, taken apart: commands, events and results
// in turn. The first one is the valid command.
func (s *scribe) together(n int) []decoded {
	var list []Unsealed
	for i := range n {
		m := Unsealed{Command, s.header(nil), []byte(vectorBody)}
		switch i % 3 {
		case 1:
			m.Type, m.Header.Kind, m.Header.Re, m.Body = Event, "agent.log", s.re(), []byte(vectorLog)
		case 2:
			m.Type, m.Header.Kind, m.Header.Re, m.Body = Result, "agent.result", s.re(), []byte(vectorEnd)
		}
		m.Header.ID, m.Header.Seq = fmt.Sprintf("0193a3c0-2222-7aaa-8bbb-%012x", 10+i), int64(42+i)
		list = append(list, m)
	}
	sealed, err := seedSigner(s.t, hub).sealTree(list, nil)
	require.NoError(s.t, err)
	var all []decoded
	for _, m := range sealed {
		d, r := decodeEnvelope(m.Envelope)
		require.Nil(s.t, r)
		all = append(all, d)
	}
	return all
}

func (s *scribe) trees() {
	for _, tree := range []struct {
		size   int
		leaves []int
	}{{2, []int{0, 1}}, {3, []int{0, 1, 2}}, {7, []int{0, 3, 4, 6}}, {MaxTree, []int{0, 37, MaxTree - 1}}} {
		all := s.together(tree.size)
		for _, i := range tree.leaves {
			s.says(fmt.Sprintf("leaf %d of a tree of %d", i, tree.size), "OK", fmt.Sprintf("type %s, a path of %d", all[i].typ, len(all[i].place.path)/sha256.Size), all[i].encode())
		}
	}
	both := s.alone(Peer, string(appendHeader(nil, s.header(func(h *Header) { h.Kind, h.Body = "peer.received", bodyRef("peer.received", vectorNumbers) }))), vectorNumbers, hub, rotated)
	s.says("two keys sign one head", "OK", "a message of type peer may have up to four signatures", both.encode())
	both.sigs[1].sig = both.sigs[0].sig
	s.says("the second signature is that of the first key", "SIG_BAD", "every signature is checked", both.encode())
}

// placed adds leaf i of a tree of n whose bytes were changed.
func (s *scribe) placed(n, i int, name, expect, why, old, new string) {
	wire := string(s.together(n)[i].encode())
	require.Contains(s.t, wire, old)
	s.says(name, expect, why, []byte(strings.Replace(wire, old, new, 1)))
}

// places are numbers that are no place, or not the message's own.
func (s *scribe) places() {
	s.placed(3, 2, "index is the size", "ENV_CANON", "there is no such leaf", `"index":2`, `"index":3`)
	s.placed(3, 2, "index -1", "ENV_CANON", "there is no such leaf", `"index":2`, `"index":-1`)
	s.placed(1, 0, "size 0", "ENV_CANON", "there is no such tree", `"size":1`, `"size":0`)
	s.placed(MaxTree, 0, "size 65", "ENV_CANON", "larger than a tree may be", `"size":64`, `"size":65`)
	s.placed(3, 2, "size with a leading zero", "ENV_JSON", "", `"size":3`, `"size":03`)
	s.placed(3, 2, "size as text", "ENV_JSON", "", `"size":3`, `"size":"3"`)
	s.placed(3, 2, "size as a fraction", "ENV_JSON", "", `"size":3`, `"size":3.0`)
	s.placed(3, 0, "index -0", "ENV_CANON", "a second spelling of 0", `"index":0`, `"index":-0`)
	s.placed(3, 2, "index before size", "ENV_CANON", "another order", `"size":3,"index":2`, `"index":2,"size":3`)
	s.placed(3, 0, "no index", "ENV_CANON", "", `,"index":0`, ``)
	s.placed(3, 0, "index null", "ENV_CANON", "", `"index":0`, `"index":null`)
	s.placed(1, 0, "no tree", "ENV_CANON", "version 1 without its name", `"tree":{"size":1,"index":0,"path":""},`, ``)
	s.placed(1, 0, "tree null", "ENV_CANON", "", `{"size":1,"index":0,"path":""}`, `null`)
	s.placed(1, 0, "unknown field of the tree", "ENV_CANON", "", `"path":""`, `"path":"","root":""`)
	s.placed(3, 0, "index of the neighbour", "SIG_BAD", "the index says on which side of its neighbours a leaf is", `"index":0`, `"index":1`)
	s.placed(8, 0, "another size, the same path", "SIG_BAD", "a path of three leads to the same root in a tree of 5; the size is signed", `"size":8`, `"size":5`)
}

// paths are not those that belong to the place.
func (s *scribe) paths() {
	path := func(n, i int, name, expect, why string, change func([]byte) []byte) {
		d := s.together(n)[i]
		d.place.path = change(d.place.path)
		s.says(name, expect, why, d.encode())
	}
	path(3, 0, "path too short by a node", "ENV_B64", "leaf 0 of 3 has a path of two", func(p []byte) []byte { return p[:32] })
	path(3, 0, "path too long by a node", "ENV_B64", "", func(p []byte) []byte { return append(p, make([]byte, 32)...) })
	path(3, 2, "path of a neighbour's length", "ENV_B64", "the last leaf of 3 has a path of one", func(p []byte) []byte { return append(p, p...) })
	path(3, 0, "path too short by a byte", "ENV_B64", "", func(p []byte) []byte { return p[:63] })
	path(3, 0, "no path", "ENV_B64", "", func([]byte) []byte { return nil })
	path(1, 0, "a path in a tree of one", "ENV_B64", "", func([]byte) []byte { return make([]byte, 32) })
	path(7, 4, "one bit of the path", "SIG_BAD", "", func(p []byte) []byte { p[40] ^= 1; return p })
	path(7, 4, "two nodes of the path swapped", "SIG_BAD", "", func(p []byte) []byte { return append(append(append([]byte(nil), p[32:64]...), p[:32]...), p[64:]...) })
	path(2, 0, "the path of another leaf", "SIG_BAD", "", func([]byte) []byte { return s.together(2)[1].place.path })
	s.placed(3, 2, "path without padding", "ENV_B64", "32 bytes end in one =", `="},"signatures"`, `"},"signatures"`)
	s.placed(3, 2, "path with bits that say nothing", "ENV_B64", "a second spelling in base64", s.lastOfPath(), s.nextOfPath())
	s.placed(3, 2, "path with a line break", "ENV_B64", "", `"path":"`, `"path":"\n`)
	s.placed(3, 2, "path null", "ENV_CANON", "", `"path":"`, `"path":null,"x":"`)
	s.placed(3, 2, "path as a list", "ENV_JSON", "", `"path":"`, `"path":["`)
}

// lastOfPath is how the path of the last of three leaves ends.
func (s *scribe) lastOfPath() string {
	wire := string(s.together(3)[2].encode())
	i := strings.Index(wire, `="},"signatures"`)
	return wire[i-1 : i+len(`="},"signatures"`)]
}

// nextOfPath is the same with the lowest bit of its last letter set, which says nothing.
func (s *scribe) nextOfPath() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	end := s.lastOfPath()
	return string(letters[strings.IndexByte(letters, end[0])|1]) + end[1:]
}
