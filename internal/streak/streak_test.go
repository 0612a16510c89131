package streak

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// The third failure in a row is news, and so is the success that ends such a row; nothing in between is.
func TestOnlyAChangeIsNews(t *testing.T) {
	t.Parallel()
	bad := errors.New("no room")
	var f Failures
	var news []int
	for i, err := range []error{nil, bad, bad, nil, bad, bad, bad, bad, nil, nil, bad} {
		if f.Note(err) {
			news = append(news, i)
		}
		require.Equal(t, i == 6 || i == 7, f.Err() != nil, "try %d", i)
		if f.Err() != nil {
			require.ErrorIs(t, f.Err(), bad)
		}
	}
	require.Equal(t, []int{6, 8}, news)
}
