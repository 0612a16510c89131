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
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	full := make(chan struct{}, 1)
	full <- struct{}{}
	secret := secretOf("of this attempt")
	room := Room{Heard: func() {}}
	for name, d := range map[string]*Door{
		"it is closed":            {room: room, secret: secret, rate: rate.NewLimiter(1, 1), closed: true},
		"it closes before a turn": {room: room, secret: secret, rate: rate.NewLimiter(1, 1), heavy: full},
	} {
		r := httptest.NewRequestWithContext(gone, "PUT", "/v1/checkpoint", nil)
		r.Header.Set("Authorization", "Bearer of this attempt")
		require.PanicsWithValue(t, http.ErrAbortHandler, func() { d.allowed(d.routes()).ServeHTTP(httptest.NewRecorder(), r) }, name)
	}
}
