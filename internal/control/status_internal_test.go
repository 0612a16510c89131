package control

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// What a database answers that cannot work now may be tried again, and is told apart from what is wrong with a statement.
func TestWhichAnswersOfADatabaseAreAnOutage(t *testing.T) {
	t.Parallel()
	for state, out := range map[string]bool{"08006": true, "40001": true, "40P01": true, "53300": true, "53100": true, "55P03": true, "57P01": true, "58030": true, "XX000": true, "25006": true,
		"23505": false, "42703": false, "22P02": false, "25P02": false, "": false, "5": false} {
		err := fmt.Errorf("reading: %w", &pgconn.PgError{Code: state})
		if got := commands.CodeOf(explain(err)); out {
			require.Equal(t, commands.StoreDown, got, state)
		} else {
			require.Equal(t, commands.Internal, got, state)
		}
	}
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, &net.OpError{Op: "read", Err: errors.New("reset")}, errors.New("conn closed"), errors.New("closed pool")} {
		require.Equal(t, commands.StoreDown, commands.CodeOf(explain(err)), "%v", err)
	}
	require.Equal(t, commands.Internal, commands.CodeOf(explain(errors.New("a defect"))))
	require.Equal(t, commands.NotFound, commands.CodeOf(explain(commands.Refuse(commands.NotFound, "no"))), "what is decided is no outage")
}

// Of a commit that was not answered it is not said that nothing was accepted: who asks again without the same id would do it twice.
func TestWhatMayHaveHappenedIsSaid(t *testing.T) {
	t.Parallel()
	p := ProblemOf(fmt.Errorf("ordering: %w: %w", commands.ErrMayBeDone, io.EOF))
	require.Equal(t, string(commands.StoreDown), p.Code)
	require.Contains(t, p.Detail, "may have been done all the same")
	require.Contains(t, p.Hint, "ask again with the same id or idempotency key")
	p = ProblemOf(fmt.Errorf("ordering: %w: %w", commands.ErrMayBeDone, commands.Refuse(commands.StoreDown, "no connection is left")))
	require.Contains(t, p.Detail, "may have been done all the same")
	require.True(t, p.MayBeDone, "a program need not read the words")
	p = ProblemOf(fmt.Errorf("ordering: %w", io.EOF))
	require.False(t, p.MayBeDone)
	require.Contains(t, p.Detail, "nothing was accepted")
}

// What may be tried again without a change is 503.
func TestWhatMayBeTriedAgainIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, code := range []commands.Code{commands.StoreDown, commands.NotReady} {
		require.Equal(t, http.StatusServiceUnavailable, status(code), code)
	}
	require.Equal(t, http.StatusConflict, status(commands.Conflict))
	require.Equal(t, http.StatusInternalServerError, status(commands.Internal))
}
