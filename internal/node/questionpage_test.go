package node

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/store"
)

// Pages have each question once, the newest first, though the one that a cursor stands behind is answered meanwhile.
func TestQuestionsComeInPages(t *testing.T) {
	t.Parallel()
	begin := time.Now().Truncate(time.Microsecond) // as the database keeps it
	var all []store.Question
	for n := range 5 {
		all = append(all, store.Question{ID: "01920000-0000-7000-8000-00000000000" + string(rune('0'+n)), State: commands.QuestionOpen, Turn: -(n / 4), HeardAt: begin.Add(time.Duration(n/2) * time.Second)})
	}
	page := func(cursor string, leaving int) (ids string, next string) {
		t.Helper()
		limit := 2
		var list []store.Question
		for n, q := range all {
			if n != leaving {
				list = append(list, q)
			}
		}
		asked, err := questionsAsked(api.ListQuestionsParams{Limit: &limit, Cursor: cursor})
		require.NoError(t, err)
		got, next := pageAmong(list, asked)
		for _, q := range got {
			ids += q.ID[35:]
		}
		return ids, next
	}
	ids, next := page("", -1)
	require.Equal(t, "32", ids)
	ids, next = page(next, 2)
	require.Equal(t, "10", ids)
	ids, next = page(next, -1)
	require.Equal(t, "4", ids, "it came while more were open")
	require.Empty(t, next)
	for _, cursor := range []string{"x", cursorOf("7"), cursorOf(all[0].ID), cursorOf("0 7 x"), cursorOf("00 7 " + all[0].ID), cursorOf("-2147483649 7 " + all[0].ID), cursorOf("0 253402300800000000 " + all[0].ID), cursorOf("0 -1 " + all[0].ID)} {
		_, err := questionsAsked(api.ListQuestionsParams{Cursor: cursor})
		require.Equal(t, commands.Validation, commands.CodeOf(err), cursor)
	}
	none := 0
	_, err := questionsAsked(api.ListQuestionsParams{Limit: &none})
	require.Equal(t, commands.Validation, commands.CodeOf(err))
}

// However much agents write, a list of their questions is small.
func TestAListOfQuestionsIsBrief(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 4000)
	q := brief(store.Question{Text: long, Default: long, Data: long})
	require.Equal(t, strings.Repeat("ä", 200)+"…", q.Text)
	require.Equal(t, q.Text, q.Default)
	require.Empty(t, q.Data)
	require.Equal(t, "may I?", brief(store.Question{Text: "may I?"}).Text)
}
