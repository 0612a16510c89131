package meshtest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/node"
)

// A request that is ended while it is answered, as by a stop of the instance, gets no error: its answer is cut off.
func TestARequestThatIsEndedGetsNoError(t *testing.T) {
	t.Parallel()
	in := newInstance(t, "rest").Visit(t)
	t.Cleanup(func() { _ = in.Close(context.WithoutCancel(t.Context())) })
	owner := control.Holder("owner", api.Access{Role: api.Owner, Workspace: api.Everywhere})
	ctx, end := context.WithCancel(control.WithCaller(t.Context(), owner))
	end()

	r := httptest.NewRequestWithContext(ctx, "GET", api.Base+"/tasks", nil)

	require.PanicsWithValue(t, http.ErrAbortHandler, func() { node.AtRest(in).ServeHTTP(httptest.NewRecorder(), r) })
}
