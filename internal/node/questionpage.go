package node

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store"
)

// How many questions one answer has.
const (
	usualPage = 200
	mostPage  = 1000
)

// mostBrief is how many characters of its words a question has in a list.
const mostBrief = 200

// questionPage is the page of a list that is asked for, the newest first, and where the next one begins; "" = it is the last.
// What was answered meanwhile is missed by no cursor: it names a place, and not a row.
func questionPage(list []store.Question, p api.ListQuestionsParams) (page []store.Question, next string, err error) {
	limit := usualPage
	if p.Limit != nil {
		limit = *p.Limit
	}
	if limit < 1 || limit > mostPage {
		return nil, "", commands.Refuse(commands.Validation, "limit is a number from 1 to %d", mostPage)
	}
	after, err := behind(p.Cursor, func(place string) error {
		var at int64
		var id string
		if n, err := fmt.Sscanf(place, "%020d %s", &at, &id); err != nil || n != 2 || len(place) != 57 {
			return fmt.Errorf("no place of a question")
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(list, func(a, b store.Question) int { return cmp.Compare(placeOf(b), placeOf(a)) })
	if after != "" {
		list = slices.DeleteFunc(list, func(q store.Question) bool { return placeOf(q) >= after })
	}
	if len(list) > limit {
		list, next = list[:limit], cursorOf(placeOf(list[limit-1]))
	}
	return list, next, nil
}

// placeOf sorts questions by when they came.
func placeOf(q store.Question) string { return fmt.Sprintf("%020d %s", q.HeardAt.UnixMicro(), q.ID) }

// brief is a question as a list has it: an agent may write much.
func brief(q store.Question) store.Question {
	q.Data, q.Text, q.Default = "", firstOf(q.Text), firstOf(q.Default)
	return q
}

func firstOf(text string) string {
	n := 0
	for at := range text {
		if n++; n > mostBrief {
			return text[:at] + "…"
		}
	}
	return text
}
