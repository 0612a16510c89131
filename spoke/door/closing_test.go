package door

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// What a door that closes has not done it does not answer, as if it were done: the agent asks the next process of its spoke.
func TestADoorThatClosesAnswersNothing(t *testing.T) {
	t.Parallel()
	full, spent := make(chan struct{}, 1), rate.NewLimiter(1, 1)
	full <- struct{}{}
	require.True(t, spent.Allow())
	secret := secretOf("of this attempt")
	for name, x := range map[string]struct {
		token string
		door  *Door
		gone  bool // before it is asked
	}{
		"it is closed":                   {"of this attempt", &Door{rate: rate.NewLimiter(1, 1), closed: true}, true},
		"it closes while a rate is over": {"of this attempt", &Door{rate: spent}, true},
		"and that of others":             {"none", &Door{wrong: spent}, true},
		"it closes before a turn":        {"of this attempt", &Door{rate: rate.NewLimiter(1, 1), heavy: full}, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if x.gone {
			cancel()
		}
		d := x.door
		d.secret, d.room = secret, Room{Heard: cancel}
		r := httptest.NewRequestWithContext(ctx, "PUT", "/v1/checkpoint", nil)
		r.Header.Set("Authorization", "Bearer "+x.token)
		require.PanicsWithValue(t, http.ErrAbortHandler, func() { d.allowed(d.routes()).ServeHTTP(httptest.NewRecorder(), r) }, name)
	}
}
