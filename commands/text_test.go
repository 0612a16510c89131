package commands

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is cleaned is a text that a message may carry, and one that is such a text stays as it is.
func TestAReasonIsCleaned(t *testing.T) {
	for text, want := range map[string]string{
		"the disk was copied":               "the disk was copied",
		"cl\xe9":                            "cl?",
		"cl\uFFFD\x00":                      "cl??",
		strings.Repeat("x", 999) + "\u00e9": strings.Repeat("x", 999),
	} {
		require.Equal(t, want, CleanReason(text))
		require.NoError(t, CheckReason(CleanReason(text)))
	}
	require.Equal(t, Validation, CodeOf(CheckReason(strings.Repeat("x", 1001))))
	require.True(t, IsText(Refuse(Internal, "%v", errors.New("cl\xe9")).Why))
	require.True(t, IsText(Clip(strings.Repeat("x", 60)+"\u00e9\u00e9\u00e9")))
}
