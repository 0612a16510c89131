package node

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// How many questions one answer has.
const (
	usualPage = 200
	mostPage  = 1000
)

// mostBrief is how many characters of its words a question has in a list.
const mostBrief = 200

// questionsAsked is the page that is asked for. A cursor names a place, and not a row: it does not matter what is answered meanwhile.
func questionsAsked(p api.ListQuestionsParams) (page store.QuestionPage, err error) {
	if page.Limit, err = limitOf(p.Limit, usualPage, mostPage); err != nil {
		return page, err
	}
	_, err = behind(p.Cursor, func(text string) error {
		var at int64
		after := store.QuestionPlace{}
		_, err := fmt.Sscanf(text, "%d %d %s", &after.Turn, &at, &after.ID)
		after.At = time.UnixMicro(at)
		if err != nil || placeText(after) != text || !signing.ValidUUID(after.ID) || after.Turn < math.MinInt32 || at < 0 || after.At.Year() > 9999 {
			return errors.New("no place of a question")
		}
		page.After = after
		return nil
	})
	return page, err
}

func placeText(p store.QuestionPlace) string {
	return fmt.Sprintf("%d %d %s", p.Turn, p.At.UnixMicro(), p.ID)
}

// pageAmong is the page of those of a list that wait for an answer, and the cursor of the next one; "" = it is the last.
func pageAmong(list []store.Question, page store.QuestionPage) (part []store.Question, next string) {
	list = slices.DeleteFunc(list, func(q store.Question) bool {
		return q.State != commands.QuestionOpen || page.After.ID != "" && q.Place().Compare(page.After) >= 0
	})
	slices.SortFunc(list, func(a, b store.Question) int { return b.Place().Compare(a.Place()) })
	if len(list) > page.Limit {
		list = list[:page.Limit]
		next = cursorOf(placeText(list[page.Limit-1].Place()))
	}
	return list, next
}

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
