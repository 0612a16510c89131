package main

import (
	"fmt"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// pairs are names and values, one pair per line.
type pairs [][]string

// add leaves out what has no value.
func (p *pairs) add(name, value string) {
	if value != "" {
		*p = append(*p, []string{name, value})
	}
}

// addWord adds what an agent has said of its own end, and where its supervisor saw another one.
func (p *pairs) addWord(r commands.Result) {
	if said := r.Reported; said != nil {
		p.add("agent says", strings.TrimSuffix(said.As+": "+said.Text, ": "))
		if said.NoRetry() {
			p.add("not retried", "the agent has said that a retry is of no use")
		}
		p.add("but", r.Contradicts())
		if said.Cut {
			p.add("left out", "data and artifacts of the agent: with its output they did not fit into one message")
		}
	}
	for _, f := range r.Artifacts {
		p.add("artifact", fmt.Sprintf("%s: %s, %d bytes, sha256 %s", f.Name, f.Path, f.Size, f.SHA256))
	}
	p.add("data", dataGlance(r))
}

// dataGlance is the beginning of the data that an agent has left, which may be long.
func dataGlance(r commands.Result) string {
	text := []rune(commands.OneLine(r.Data))
	if len(text) <= mostData {
		return string(text)
	}
	return fmt.Sprintf("%s… (%d bytes; all of it with -o json)", string(text[:mostData]), len(r.Data))
}

// mostData is how many characters of the data of an agent a person is shown.
const mostData = 200

// saidBy marks the words of a peer as its own: it may have chosen any.
func saidBy(peer, words string) string {
	if words == "" {
		return ""
	}
	return peer + " says: " + words
}
