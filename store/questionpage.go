package store

import (
	"cmp"
	"strings"
	"time"
)

// WithoutData leaves the data of questions out of what a list selects: they may be large.
func WithoutData(query string) string {
	return strings.NewReplacer("i.data", "''", "q.data", "''").Replace(query)
}

// A QuestionPlace is where a question stands in lists, the highest first. They begin with the first 200 of each connection that
// are open, those first that came last; then come the next ones of each. A question keeps the turn that it got when it came.
// The zero value stands before all.
type QuestionPlace struct {
	Turn int // 0 or less
	At   time.Time
	ID   string
}

// Place is where a question stands.
func (q Question) Place() QuestionPlace { return QuestionPlace{Turn: q.Turn, At: q.HeardAt, ID: q.ID} }

// Compare compares two places: less than 0, o comes first in a list.
func (p QuestionPlace) Compare(o QuestionPlace) int {
	return cmp.Or(cmp.Compare(p.Turn, o.Turn), p.At.Compare(o.At), cmp.Compare(p.ID, o.ID))
}

// A QuestionPage is a part of a list of questions.
type QuestionPage struct {
	After QuestionPlace // where it begins
	Limit int           // of questions
}

// Args are the arguments of a statement that selects a page: turn, time and id of what it begins behind, and how many.
func (p QuestionPage) Args() []any {
	if p.After == (QuestionPlace{}) {
		return []any{1, time.Unix(0, 0), lastID, p.Limit} // no question has such a turn
	}
	return []any{p.After.Turn, p.After.At, p.After.ID, p.Limit}
}
