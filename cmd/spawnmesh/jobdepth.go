package main

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// What a file of jobs may hold before it is parsed. Jobs need five levels, and the library's memory grows with the square
// of the depth, its time with the square of the keys of a mapping; there are more tokens than entries.
const (
	maxJobDepth  = 32
	maxJobKeys   = 1000
	maxJobTokens = 60 * maxJobs
)

// parseJobs reads YAML that somebody else may have written, a document at a time: the library's time grows with the square
// of those that it reads at once.
func parseJobs(raw []byte) (docs []*ast.DocumentNode, err error) {
	tokens := lexer.Tokenize(string(raw))
	if t, why := outOfBounds(tokens); t != nil {
		return nil, &boundError{t.Position, why}
	}
	if len(tokens) > maxJobTokens {
		return nil, &boundError{tokens[maxJobTokens].Position, "there is more here than jobs need; order them from several files"}
	}
	for len(tokens) > 0 {
		end := endOfDocument(tokens)
		file, err := parser.Parse(tokens[:end:end], 0)
		if err != nil {
			return nil, err
		}
		docs, tokens = append(docs, file.Docs...), tokens[end:]
	}
	return docs, nil
}

// endOfDocument returns where the next document begins: before its header, but for one that directives want.
func endOfDocument(tokens token.Tokens) int {
	directive := tokens[0].Type == token.DirectiveType
	for i, t := range tokens {
		switch {
		case t.Type == token.DirectiveType:
			directive = true
		case i == 0 || t.Type != token.DocumentHeaderType:
		case directive:
			directive = false
		default:
			return i
		}
	}
	return len(tokens)
}

// A boundError says where YAML holds more than is read.
type boundError struct {
	at  *token.Position
	why string
}

func (e *boundError) Error() string { return e.why }

// A nest is what YAML is in at some place: brackets, and entries and keys that each begin further to the right.
type nest struct {
	flow   []int    // keys below each open bracket
	blocks []indent // outside of brackets
}

// An indent is the column of the entries of a list, or of the keys of a mapping.
type indent struct{ column, keys int }

// outOfBounds returns the first token that is deeper than maxJobDepth, or is a key too many of its mapping, with what is
// wrong with it; nil where there is none.
func outOfBounds(tokens token.Tokens) (*token.Token, string) {
	var n nest
	for _, t := range tokens {
		keys := n.take(t)
		if len(n.flow)+len(n.blocks) > maxJobDepth {
			return t, "this nests deeper than jobs do"
		}
		if keys > maxJobKeys {
			return t, fmt.Sprintf("a mapping has more than %d keys", maxJobKeys)
		}
	}
	return nil, ""
}

// take goes on to a token, and returns how many keys its mapping has with it.
func (n *nest) take(t *token.Token) (keys int) {
	inner := len(n.flow) - 1
	switch {
	case t.Type == token.SequenceStartType || t.Type == token.MappingStartType:
		n.flow = append(n.flow, 0)
	case t.Type == token.SequenceEndType || t.Type == token.MappingEndType:
		n.flow = n.flow[:max(0, inner)]
	case t.Type == token.DocumentHeaderType || t.Type == token.DocumentEndType:
		n.flow, n.blocks = n.flow[:0], n.blocks[:0]
	case !opens(t):
	case inner >= 0:
		n.flow[inner]++
		return n.flow[inner]
	default:
		return n.block(t)
	}
	return 0
}

// block goes on to an entry or a key outside of brackets.
func (n *nest) block(t *token.Token) (keys int) {
	at := t.Position.Column
	for len(n.blocks) > 0 && n.blocks[len(n.blocks)-1].column > at {
		n.blocks = n.blocks[:len(n.blocks)-1]
	}
	if len(n.blocks) == 0 || n.blocks[len(n.blocks)-1].column < at {
		n.blocks = append(n.blocks, indent{column: at})
	}
	last := &n.blocks[len(n.blocks)-1]
	if t.Type != token.SequenceEntryType {
		last.keys++
	}
	return last.keys
}

// opens reports whether a token begins an entry of a list, or is a key.
func opens(t *token.Token) bool {
	return t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType || t.Next != nil && t.Next.Type == token.MappingValueType
}
