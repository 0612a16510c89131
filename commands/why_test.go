package commands

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a spoke tells of an agent that waits is taken by its hub, however long it was.
func TestReasonsThatAreTold(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(7_000).UTC()
	long := WhyReason{Code: CauseBudget, Text: strings.Repeat("ä", 1000), Since: &at, Until: &at, Fix: strings.Repeat("x", 1000), Figure: Figure(1.5)}
	var list []WhyReason
	for range MaxReasons + 1 {
		list = append(list, long)
	}
	list[1].Figure = Figure(math.Inf(1))
	b := &TaskState{Task: "018f1a2b-0000-7000-8000-000000000001", State: Queued, At: 1, Reasons: ToldReasons(list)}

	require.NoError(t, b.Validate())

	said := b.Said("attic")
	require.Len(t, said, MaxReasons)
	require.Equal(t, WhyReason{Code: CauseBudget, Text: said[0].Text, Since: &at, Until: &at, Where: "attic", Fix: said[0].Fix, Figure: Figure(1.5)}, said[0])
	require.Len(t, said[0].Text, maxReasonText)
	require.Nil(t, said[1].Figure)
	for name, spoil := range map[string]func(*TaskReason){
		"an unknown code": func(r *TaskReason) { r.Code = "mood" },
		"a long text":     func(r *TaskReason) { r.Text = strings.Repeat("x", maxReasonText+1) },
		"a long fix":      func(r *TaskReason) { r.Fix = strings.Repeat("x", maxReasonText+1) },
		"a wrong time":    func(r *TaskReason) { r.Until = -1 },
		"no number":       func(r *TaskReason) { r.Figure = Figure(math.NaN()) },
	} {
		bad := *b
		bad.Reasons = ToldReasons(list[:1])
		spoil(&bad.Reasons[0])
		require.Equal(t, Validation, CodeOf(bad.Validate()), name)
	}
	more := *b
	more.Reasons = append(more.Reasons, more.Reasons[0])
	require.Error(t, more.Validate())
}
