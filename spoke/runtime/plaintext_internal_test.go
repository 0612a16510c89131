package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Why something could not be opened is said without its path, whoever says it.
func TestPlainTextHasNoPath(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"too many open files": &fs.PathError{Op: "open", Path: "/srv/secret", Err: syscall.EMFILE},
		"no room to look":     &fs.PathError{Op: "open", Path: "/srv/secret", Err: errors.New("no room to look")},
		"no room":             fmt.Errorf("judging /srv/secret: %w", &fs.PathError{Op: "open", Path: "/srv/secret", Err: errors.New("no room")}),
		"else":                errors.New("else"),
	} {
		require.Equal(t, want, plainText(err))
	}
}
