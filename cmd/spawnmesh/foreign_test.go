package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/internal/control"
)

// Something that answers 200 to everything is no hub: no kill is said to be ordered.
func TestAKillNamesItsAgent(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status":"ok"}`) }))
	defer s.Close()

	_, err := orderKill(t.Context(), control.NewRemoteClient(control.Remote{Context: "lab", URL: s.URL}), "k7f3m2qp", "test", 0)

	require.ErrorContains(t, err, "names no agent")
}

// What is printed as it comes moves no cursor, and no character is lost where the text is cut.
func TestAForeignTextIsHarmless(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	p := &plainly{to: &got}
	for _, b := range []byte("a\x1b[2Jäß€\u009b\u202e\n") {
		_, err := p.Write([]byte{b})
		require.NoError(t, err)
	}

	require.Equal(t, "a·[2Jäß€··\n", got.String())
}
