package backlog_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/storetest"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func TestBadTasks(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "taken", Title: "taken", IdempotencyKey: "used"})
	long := strings.Repeat("x", 10<<10)
	tests := map[string]struct {
		spec backlog.TaskSpec
		code commands.Code
	}{
		"no title":                         {backlog.TaskSpec{}, commands.Validation},
		"a blank title":                    {backlog.TaskSpec{Title: " \t"}, commands.Validation},
		"a newline in the key":             {backlog.TaskSpec{Title: "t", Key: "a\nb"}, commands.Validation},
		"a NUL in the key":                 {backlog.TaskSpec{Title: "t", Key: "a\x00b"}, commands.Validation},
		"a key of 10 KiB":                  {backlog.TaskSpec{Title: "t", Key: long}, commands.Validation},
		"a key that ends with a space":     {backlog.TaskSpec{Title: "t", Key: "a "}, commands.Validation},
		"a key that looks like an id":      {backlog.TaskSpec{Title: "t", Key: storetest.NewID()}, commands.Validation},
		"a key that is not UTF-8":          {backlog.TaskSpec{Title: "t", Key: "\xff"}, commands.Validation},
		"a title of 10 KiB":                {backlog.TaskSpec{Title: long}, commands.Validation},
		"a body of 65 KiB":                 {backlog.TaskSpec{Title: "t", Body: strings.Repeat("x", 65<<10)}, commands.Validation},
		"priority 101":                     {backlog.TaskSpec{Title: "t", Priority: 101}, commands.Validation},
		"priority -101":                    {backlog.TaskSpec{Title: "t", Priority: -101}, commands.Validation},
		"a huge priority":                  {backlog.TaskSpec{Title: "t", Priority: 1 << 40}, commands.Validation},
		"negative retries":                 {backlog.TaskSpec{Title: "t", MaxRetries: -1}, commands.Validation},
		"a lane with SQL in it":            {backlog.TaskSpec{Title: "t", Lane: "x'; DROP TABLE tasks; --"}, commands.Validation},
		"a capability with a space":        {backlog.TaskSpec{Title: "t", Capabilities: []string{"a b"}}, commands.Validation},
		"257 capabilities":                 {backlog.TaskSpec{Title: "t", Capabilities: make([]string, 257)}, commands.Validation},
		"5 KiB of capabilities":            {backlog.TaskSpec{Title: "t", Capabilities: strings.Fields(strings.Repeat(strings.Repeat("c", 50)+" ", 100))}, commands.Validation},
		"a negative estimate":              {backlog.TaskSpec{Title: "t", Estimate: map[string]backlog.Amount{"usd": -1}}, commands.Validation},
		"an estimate beyond all bounds":    {backlog.TaskSpec{Title: "t", Estimate: map[string]backlog.Amount{"usd": 1 << 62}}, commands.Validation},
		"an estimate of no dimension":      {backlog.TaskSpec{Title: "t", Estimate: map[string]backlog.Amount{"": 1}}, commands.Validation},
		"acceptance that is a number":      {backlog.TaskSpec{Title: "t", Acceptance: json.RawMessage(`1`)}, commands.Validation},
		"acceptance that is not JSON":      {backlog.TaskSpec{Title: "t", Acceptance: json.RawMessage(`{`)}, commands.Validation},
		"acceptance with a NUL":            {backlog.TaskSpec{Title: "t", Acceptance: json.RawMessage(`["\u0000"]`)}, commands.Validation},
		"acceptance with half a character": {backlog.TaskSpec{Title: "t", Acceptance: json.RawMessage(`["\ud800"]`)}, commands.Validation},
		"acceptance with a number beyond":  {backlog.TaskSpec{Title: "t", Acceptance: json.RawMessage(`{"n":1e131073}`)}, commands.Validation},
		"an unknown policy":                {backlog.TaskSpec{Title: "t", OnFailedDep: "explode"}, commands.Validation},
		"an unknown dependency":            {backlog.TaskSpec{Title: "t", DependsOn: []string{"nobody"}}, commands.NotFound},
		"an unknown id as dependency":      {backlog.TaskSpec{Title: "t", DependsOn: []string{storetest.NewID()}}, commands.NotFound},
		"itself as dependency":             {backlog.TaskSpec{Title: "t", Key: "self", DependsOn: []string{"self"}}, commands.NotFound},
		"10,001 dependencies":              {backlog.TaskSpec{Title: "t", DependsOn: make([]string, 10_001)}, commands.Validation},
		"a taken key, other content":       {backlog.TaskSpec{Title: "other", Key: "taken"}, commands.Conflict},
		"a used idempotency key, changed":  {backlog.TaskSpec{Title: "other", IdempotencyKey: "used"}, commands.Idempotency},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := b.Create(t.Context(), tt.spec)
			require.Equal(t, tt.code, commands.CodeOf(err), "%v", err)
		})
	}
	all, err := b.List(t.Context(), backlog.Filter{})
	require.NoError(t, err)
	require.Len(t, all, 1, "nothing of the bad ones is kept")
}

// What is merely strange is stored as it is.
func TestStrangeTasks(t *testing.T) {
	t.Parallel()
	b := board(t)
	for name, key := range map[string]string{"spaces": "a key with spaces", "SQL": `'; DROP TABLE tasks; --`, "slashes": "../../etc/passwd",
		"unicode": "ключ 🗝", "percent": "100%s%d", "the longest": strings.Repeat("k", backlog.MaxKey), "the beginning of an id": "0193a3"} {
		t.Run(name, func(t *testing.T) {
			spec := backlog.TaskSpec{Key: key, Title: key, Body: "line\nline\t$1 " + key, Acceptance: json.RawMessage(`["` + "works" + `"]`), IdempotencyKey: key}

			out := create(t, b, spec)
			again := create(t, b, spec)

			require.True(t, again[0].Existing)
			require.Equal(t, out[0].ID, again[0].ID)
			got, err := b.Show(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, []string{out[0].ID, key, spec.Body}, []string{got.ID, got.Key, got.Body})
			require.JSONEq(t, `["works"]`, string(got.Acceptance))
			list, err := b.Claim(t.Context(), backlog.ClaimTerms{Owner: key, Task: key})
			require.NoError(t, err)
			require.Equal(t, key, list[0].Key)
		})
	}
}

func TestBadClaimsAndActs(t *testing.T) {
	t.Parallel()
	b := board(t)
	create(t, b, backlog.TaskSpec{Key: "a", Title: "a"}, backlog.TaskSpec{Key: "b", Title: "b"})
	a := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "a" })[0]
	other := claimCards(t, b, func(c *backlog.ClaimTerms) { c.Task = "b" })[0]
	claim := func(change func(*backlog.ClaimTerms)) error {
		terms := backlog.ClaimTerms{Owner: "w"}
		change(&terms)
		return second(b.Claim(t.Context(), terms))
	}
	result := func(raw string) func(context.Context) error {
		return func(ctx context.Context) error {
			return second(b.Complete(ctx, backlog.Act{Fence: &a.Fence, Result: []byte(raw)}))
		}
	}
	ofAnother := backlog.Fence{Task: a.Fence.Task, Attempt: a.Fence.Attempt, Epoch: a.Fence.Epoch + 1}
	tests := map[string]struct {
		act  func(ctx context.Context) error
		code commands.Code
	}{
		"a claim of nobody":               {func(context.Context) error { return claim(func(c *backlog.ClaimTerms) { c.Owner = "" }) }, commands.Validation},
		"a negative lease":                {func(context.Context) error { return claim(func(c *backlog.ClaimTerms) { c.Lease = -time.Second }) }, commands.Validation},
		"a lease of a nanosecond":         {func(context.Context) error { return claim(func(c *backlog.ClaimTerms) { c.Lease = 1 }) }, commands.Validation},
		"a lease of ten years":            {func(context.Context) error { return claim(func(c *backlog.ClaimTerms) { c.Lease = 87600 * time.Hour }) }, commands.Validation},
		"a batch of -1":                   {func(context.Context) error { return claim(func(c *backlog.ClaimTerms) { c.Limit = -1 }) }, commands.Validation},
		"a batch of a million":            {func(context.Context) error { return claim(func(c *backlog.ClaimTerms) { c.Limit = 1e6 }) }, commands.Validation},
		"a claim of a task that is held":  {func(context.Context) error { return claim(func(c *backlog.ClaimTerms) { c.Task = "a" }) }, commands.Conflict},
		"a claim of an unknown task":      {func(context.Context) error { return claim(func(c *backlog.ClaimTerms) { c.Task = "zz" }) }, commands.NotFound},
		"a renewal with a negative lease": {func(ctx context.Context) error { return second(b.Renew(ctx, a.Fence, -1)) }, commands.Validation},
		"a renewal with a stale epoch":    {func(ctx context.Context) error { return second(b.Renew(ctx, ofAnother, 0)) }, commands.StaleAttempt},
		"a fence of another task": {func(ctx context.Context) error {
			return second(b.Complete(ctx, backlog.Act{Task: "a", Fence: &other.Fence}))
		}, commands.Validation},
		"a stale fence": {func(ctx context.Context) error { return second(b.Complete(ctx, backlog.Act{Fence: &ofAnother})) }, commands.StaleAttempt},
		"a fence of an unknown task": {func(ctx context.Context) error {
			return second(b.Fail(ctx, backlog.Act{Fence: &backlog.Fence{Task: storetest.NewID(), Attempt: 1, Epoch: 1}}))
		}, commands.NotFound},
		"neither task nor fence": {func(ctx context.Context) error { return second(b.Complete(ctx, backlog.Act{})) }, commands.Validation},
		"a worker who cancels":   {func(ctx context.Context) error { return second(b.Cancel(ctx, backlog.Act{Fence: &a.Fence})) }, commands.Validation},
		"a result that is not JSON": {func(ctx context.Context) error {
			return second(b.Complete(ctx, backlog.Act{Fence: &a.Fence, Result: []byte("no")}))
		}, commands.Validation},
		"a result with a NUL":            {result(`{"a":"\u0000"}`), commands.Validation},
		"a result with half a character": {result(`["\udc00"]`), commands.Validation},
		"a result with a number beyond":  {result(`[1e131073]`), commands.Validation},
		"unblocking what is not blocked": {func(ctx context.Context) error { return second(b.Unblock(ctx, backlog.Act{Task: "a"})) }, commands.Conflict},
		"retrying what has not ended":    {func(ctx context.Context) error { return second(b.Retry(ctx, backlog.Act{Task: "a"})) }, commands.Conflict},
		"a report without a key":         {func(ctx context.Context) error { return b.Report(ctx, a.Fence, "", tokens(1)) }, commands.Validation},
		"a list of a million":            {func(ctx context.Context) error { return second(b.List(ctx, backlog.Filter{Limit: 1e6})) }, commands.Validation},
		"a list of an unknown status":    {func(ctx context.Context) error { return second(b.List(ctx, backlog.Filter{Status: "open"})) }, commands.Validation},
		"a budget of no scope":           {func(ctx context.Context) error { return b.SetBudget(ctx, backlog.Budget{Name: "b", Dimension: "usd"}) }, commands.Validation},
		"a negative budget": {func(ctx context.Context) error {
			return b.SetBudget(ctx, backlog.Budget{Name: "b", Scope: "workspace", Dimension: "usd", Hard: -1})
		}, commands.Validation},
		"a quota of nothing":         {func(ctx context.Context) error { return b.SetQuota(ctx, backlog.Quota{Name: "q", Scope: "workspace"}) }, commands.Validation},
		"a weight of 1001":           {func(ctx context.Context) error { return b.SetLane(ctx, backlog.Lane{Name: "l", Weight: 1001}) }, commands.Validation},
		"a freeze without a reason":  {func(ctx context.Context) error { return failed(b.Freeze(ctx, backlog.Freeze{Scope: "workspace"})) }, commands.Validation},
		"a budget that is not there": {func(ctx context.Context) error { return second(b.ResetBudget(ctx, "none", "")) }, commands.NotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.act(t.Context())
			require.Equal(t, tt.code, commands.CodeOf(err), "%v", err)
		})
	}
	_, err := b.Complete(t.Context(), backlog.Act{Fence: &ofAnother})
	require.ErrorContains(t, err, "worker-1 holds it with attempt 1", "who holds it now is said")
	for _, key := range []string{"a", "b"} {
		task, err := b.Show(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, commands.Claimed, task.State, "and nothing was changed")
	}
	for _, bad := range []string{"", "x", a.Fence.Task, a.Fence.Task + "/0/1", a.Fence.Task + "/1/-1", a.Fence.String() + "/1", strings.Repeat("9", 300)} {
		_, err := backlog.ParseFence(bad)
		require.Equal(t, commands.Validation, commands.CodeOf(err), "%q", bad)
	}
	f, err := backlog.ParseFence(a.Fence.String())
	require.NoError(t, err)
	require.Equal(t, a.Fence, f)
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]backlog.Amount{"0": 0, "1": backlog.Unit, "1.5": 1_500_000, "0.000001": 1, "12.340000": 12_340_000} {
		got, err := backlog.ParseAmount(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, bad := range []string{"", "-1", "1.", ".5", "1e3", "1.0000001", "NaN", "1 ", "99999999999999999999"} {
		_, err := backlog.ParseAmount(bad)
		require.Equal(t, commands.Validation, commands.CodeOf(err), "%q", bad)
	}
	require.Equal(t, []string{"1.5", "0", "-2", "0.000001"}, []string{backlog.Amount(1_500_000).String(), backlog.Amount(0).String(), backlog.Amount(-2_000_000).String(), backlog.Amount(1).String()})
}
