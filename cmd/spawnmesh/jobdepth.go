package main

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxJobDepth is how deep a file of jobs may nest; jobs need five levels. The library's memory grows with the
// square of the depth.
const maxJobDepth = 32

// parseJobs reads YAML that somebody else may have written.
func parseJobs(raw []byte) (*ast.File, error) {
	tokens := lexer.Tokenize(string(raw))
	if deep := tooDeep(tokens); deep != nil {
		return nil, &tooDeepError{deep.Position}
	}
	return parser.Parse(tokens, 0)
}

// A tooDeepError says where YAML nests deeper than is read.
type tooDeepError struct{ at *token.Position }

func (*tooDeepError) Error() string { return "this nests deeper than jobs do" }

// tooDeep returns the first token that is deeper than maxJobDepth, nil where there is none: below so many brackets,
// and so many entries and keys that each begin further to the right.
func tooDeep(tokens token.Tokens) *token.Token {
	flow, columns := 0, []int{}
	for _, t := range tokens {
		switch {
		case t.Type == token.SequenceStartType || t.Type == token.MappingStartType:
			flow++
		case t.Type == token.SequenceEndType || t.Type == token.MappingEndType:
			flow = max(0, flow-1)
		case t.Type == token.DocumentHeaderType || t.Type == token.DocumentEndType:
			flow, columns = 0, columns[:0]
		case flow == 0 && opens(t):
			for len(columns) > 0 && columns[len(columns)-1] >= t.Position.Column {
				columns = columns[:len(columns)-1]
			}
			columns = append(columns, t.Position.Column)
		}
		if flow+len(columns) > maxJobDepth {
			return t
		}
	}
	return nil
}

// opens reports whether a token begins an entry of a list, or is a key.
func opens(t *token.Token) bool {
	return t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType || t.Next != nil && t.Next.Type == token.MappingValueType
}
