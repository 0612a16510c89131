package hub

import (
	"crypto/sha256"
	"strings"
	"sync"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store"
)

// maxRefused bounds the programs that are remembered of one spoke. With one more
// all of them are forgotten: the next refusals tell again.
const maxRefused = 256

// refusers remembers which programs spokes have refused by the policy that they
// have now. It only says who is asked last: it is lost with the process, and a
// spoke that it is wrong about still gets what nobody else takes.
type refusers struct {
	mu     sync.Mutex
	byConn map[string]refusedHere
}

// refusedHere is what one version of a spoke's policy has refused.
type refusedHere struct {
	policy   string
	programs map[program]bool
}

// A program is the digest of a runtime and what it is to start.
type program [sha256.Size]byte

func programOf(s *commands.Spawn) program {
	words := []string{s.Runtime}
	if len(s.Argv) > 0 {
		words = append(words, s.Argv[0])
	}
	return sha256.Sum256([]byte(strings.Join(words, "\x00")))
}

// note remembers a refusal of s that a policy decided.
func (f *refusers) note(s *commands.Spawn, r store.Refusal) {
	if r.Code != commands.Policy || r.Policy == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byConn == nil {
		f.byConn = map[string]refusedHere{}
	}
	here := f.byConn[r.Conn]
	if here.policy != r.Policy || len(here.programs) >= maxRefused {
		here = refusedHere{r.Policy, map[program]bool{}}
	}
	here.programs[programOf(s)] = true
	f.byConn[r.Conn] = here
}

// refuses reports whether the spoke of a connection has refused the program of s by
// this version of its policy.
func (f *refusers) refuses(conn, policy string, s *commands.Spawn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	here := f.byConn[conn]
	return here.policy == policy && here.programs[programOf(s)]
}

// forget forgets the spoke of a connection that has ended.
func (f *refusers) forget(conn string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byConn, conn)
}
