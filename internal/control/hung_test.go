package control

import (
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An instance that waits for what was asked of it, and says that it is alive, does not hang; one that says nothing does, and an
// answer that comes later is taken all the same.
func TestALongWaitIsNoneThatHangs(t *testing.T) {
	t.Parallel()
	for name, alive := range map[string]bool{"alive": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open, probed, told := make(chan struct{}), make(chan struct{}, 100), atomic.Int32{}
			mux := http.NewServeMux()
			mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
				<-open
				_, _ = io.WriteString(w, `{}`)
			})
			mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {
				probed <- struct{}{}
				if !alive {
					<-open
				}
			})
			dir := t.TempDir()
			l, err := Listen(t.Context(), dir)
			require.NoError(t, err)
			go func() { _ = Serve(t.Context(), l, mux, nil, nil, slog.New(slog.DiscardHandler)) }()
			c := NewClient(dir)
			c.Hung = func(time.Duration) {
				told.Add(1)
				close(open)
			}
			if alive {
				go func() {
					<-probed
					<-probed // so it has heard the answer to the first
					close(open)
				}()
			}
			require.NoError(t, c.Do(t.Context(), http.MethodGet, "/slow", nil, nil))
			require.Equal(t, !alive, told.Load() == 1)
		})
	}
}
