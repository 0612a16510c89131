package commands

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who was restored asks on from page to page. A page that goes on nowhere would be asked for again for ever, and one that tells
// of more than its messages can be about is made up.
func TestWhatIsRecalledGoesOn(t *testing.T) {
	t.Parallel()
	const id = "01920000-0000-7000-8000-000000000001"
	tasks := func(n int) (list []TaskStanding) {
		for i := range n {
			list = append(list, TaskStanding{Task: fmt.Sprintf("%s%04x", id[:len(id)-4], i), Command: id, SHA256: strings.Repeat("a", 64), State: Running, Attempt: 1})
		}
		return list
	}
	check := func(r Recalled) error { return (&Numbering{Recalled: &r}).check() }
	for name, fine := range map[string]Recalled{
		"nothing":         {From: 7, Through: 6, Done: true},
		"one message":     {From: 7, Through: 7, Tasks: tasks(1)},
		"a task of many":  {From: 7, Through: 90, Done: true, Tasks: tasks(1)},
		"a whole page":    {From: 1, Through: MaxRecalled, Tasks: tasks(MaxRecalled)},
		"orders":          {From: 7, Through: 8, Orders: make([][]byte, 2)},
		"a page of holes": {From: 7, Through: 1 << 20, Tasks: tasks(MaxRecalled)},
	} {
		require.NoError(t, check(fine), name)
	}
	for name, bad := range map[string]Recalled{
		"a page that does not go on": {From: 7, Through: 6},
		"a page that goes back":      {From: 7, Through: 5, Done: true},
		"a task of no message":       {From: 7, Through: 6, Done: true, Tasks: tasks(1)},
		"a task twice":               {From: 7, Through: 8, Tasks: slices.Repeat(tasks(1), 2)},
		"two tasks of one message":   {From: 7, Through: 7, Tasks: tasks(2)},
		"two orders of one message":  {From: 7, Through: 7, Done: true, Orders: make([][]byte, 2)},
		"more tasks than a page has": {From: 1, Through: 500, Tasks: tasks(MaxRecalled + 1)},
	} {
		require.Equal(t, Validation, CodeOf(check(bad)), name)
	}
}
