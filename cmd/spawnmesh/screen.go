package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// A screen shows a stream of an agent on a terminal: its colours, and no other control of it. After
// each piece the terminal has its own colour again, whatever comes next or never comes.
type screen struct {
	colours bool
	kept    string // the begun end of what came: the rest may follow
	on      string // what has set the colours of the line so far
}

// A colour is set by one sequence. One that has begun is no longer than mostBegun.
var (
	setsColour  = regexp.MustCompile(`^\x1b\[[0-9;:]*m`)
	beginsOne   = regexp.MustCompile(`^\x1b(\[[0-9;:]*)?$`)
	endsColours = regexp.MustCompile(`^\x1b\[0*m$`)
)

const mostBegun, mostOn = 32, 128

// show returns what a terminal is to show of the next piece.
func (s *screen) show(piece string) string {
	var text strings.Builder
	text.WriteString(s.on)
	rest := s.kept + piece
	s.kept = ""
	for rest != "" {
		if !utf8.FullRuneInString(rest) || s.colours && len(rest) <= mostBegun && beginsOne.MatchString(rest) {
			s.kept = rest
			break
		}
		if set := setsColour.FindString(rest); set != "" && s.colours {
			s.turn(set)
			text.WriteString(set)
			rest = rest[len(set):]
			continue
		}
		r, n := utf8.DecodeRuneInString(rest)
		rest = rest[n:]
		if r == '\n' {
			s.off(&text)
			s.on = ""
		}
		text.WriteRune(harmless(r))
	}
	s.off(&text)
	return text.String()
}

// turn notes what has set the colours.
func (s *screen) turn(set string) {
	switch {
	case endsColours.MatchString(set):
		s.on = ""
	case len(s.on)+len(set) > mostOn:
		s.on = set
	default:
		s.on += set
	}
}

// off gives the terminal its own colour where it has another.
func (s *screen) off(text *strings.Builder) {
	if s.on != "" {
		text.WriteString(plain)
	}
}
