package commands

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, n := range map[string]int64{"0": 0, "1": 1, "1000": 1000, "1KiB": 1 << 10, "64MiB": 64 << 20, "3GiB": 3 << 30, "2TiB": 2 << 40} {
		got, err := ReadSize(text)
		require.NoError(t, err, text)
		require.Equal(t, n, got)
		require.Equal(t, text, SizeText(n))
	}
	got, err := ReadSize("1048576")
	require.NoError(t, err)
	require.Equal(t, "1MiB", SizeText(got))
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "64 MiB", "64MB", "8388608TiB", "9223372036854775808"} {
		_, err := ReadSize(text)
		require.Error(t, err, text)
	}
	require.Equal(t, "64 MiB", SizeInWords(64<<20))
	require.Equal(t, "1 GiB", SizeInWords(1<<30))
	require.Equal(t, "64 GiB", SizeInWords(64<<30))
}
