package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A question is over when it is interrupted, and that is no answer to it.
func TestAnInterruptEndsAQuestion(t *testing.T) {
	t.Parallel()
	no := misuse("nothing was killed")
	for name, end := range map[string]struct {
		typed string
		err   error
	}{"an interrupt": {"", context.Canceled}, "no": {"n\n", no}, "yes": {"y\n", nil}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keyboard, screen := aTerminal(t, 80)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			done := make(chan error, 1)
			go func() { done <- (&app{in: screen, err: screen}).meant(ctx, "kill them?", no) }()
			seen := ""
			for some := make([]byte, 256); !strings.HasSuffix(seen, "kill them? [y/N] "); {
				n, err := keyboard.Read(some)
				require.NoError(t, err)
				seen += string(some[:n])
			}

			if end.typed == "" {
				interrupt()
			} else {
				_, err := keyboard.WriteString(end.typed)
				require.NoError(t, err)
			}

			require.Equal(t, end.err, <-done)
		})
	}
}
