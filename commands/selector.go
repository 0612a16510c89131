package commands

import "strings"

// A Selector is what the labels of agents have to be. All of it has to hold.
type Selector struct {
	Has     Labels   // these names with these values
	HasNot  []Labels // none of these, one name each; who lacks the name differs, too
	Names   []string // these names, whatever their values
	NoNames []string // none of these names
}

// maxTerms bounds a selector.
const maxTerms = 32

// ParseSelector reads a selector: terms NAME=VALUE, NAME!=VALUE, NAME and !NAME with commas between
// them. An empty text asks for nothing.
func ParseSelector(text string) (s Selector, err error) {
	if strings.TrimSpace(text) == "" {
		return s, nil
	}
	terms := strings.Split(text, ",")
	if len(terms) > maxTerms {
		return s, Refuse(Validation, "the selector has %d terms, limit %d", len(terms), maxTerms)
	}
	for _, term := range terms {
		if err := s.add(strings.TrimSpace(term)); err != nil {
			return Selector{}, err
		}
	}
	return s, nil
}

func (s *Selector) add(term string) error {
	name, value, valued := strings.Cut(term, "=")
	name, differs := strings.CutSuffix(name, "!")
	lacking, lacks := strings.CutPrefix(name, "!")
	was, twice := s.Has[name]
	switch {
	case lacks && !valued && !differs && isLabel(lacking):
		s.NoNames = append(s.NoNames, lacking)
	case !isLabel(name) || value != "" && !isLabel(value) || differs && !valued:
		return Refuse(Validation, "%q is no term of a selector; write NAME=VALUE, NAME!=VALUE, NAME or !NAME, with commas between several", Clip(term))
	case !valued:
		s.Names = append(s.Names, name)
	case differs:
		s.HasNot = append(s.HasNot, Labels{name: value})
	case twice && was != value:
		return Refuse(Validation, "no label %s is %q and %q at once", name, was, value).Hinting("ask for one value at a time")
	default:
		if s.Has == nil {
			s.Has = Labels{}
		}
		s.Has[name] = value
	}
	return nil
}

// Empty reports whether s asks for nothing.
func (s Selector) Empty() bool { return s.Unlabelled() && len(s.HasNot)+len(s.NoNames) == 0 }

// Unlabelled reports whether what has no labels is selected.
func (s Selector) Unlabelled() bool { return len(s.Has)+len(s.Names) == 0 }
