package main

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// What a file of jobs may hold before it is parsed. Jobs need five levels, and the library's memory grows with the square
// of the depth; there are more tokens than entries.
const (
	maxJobDepth  = 32
	maxJobTokens = 60 * maxJobs
)

// parseJobs reads YAML that somebody else may have written, a document at a time: the library's time grows with the square
// of those that it reads at once.
func parseJobs(raw []byte) (docs []*ast.DocumentNode, err error) {
	tokens := lexer.Tokenize(string(raw))
	if deep := tooDeep(tokens); deep != nil {
		return nil, &boundError{deep.Position, "this nests deeper than jobs do"}
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
