package commands

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnIDIsNamedBySixOrMoreOfItsCharacters(t *testing.T) {
	t.Parallel()
	const id = "0199a5f2-7c10-7d3e-9b7a-5f2c1e88d001"
	for name, tt := range map[string]struct {
		text        string
		means, uuid bool
	}{
		"all of it":                   {id, true, true},
		"six characters":              {id[:6], true, true},
		"five characters":             {id[:5], false, false},
		"none":                        {"", false, false},
		"all but the last":            {id[:35], true, true},
		"up to a dash":                {id[:9], true, true},
		"another id":                  {"0199a5f3", false, true},
		"more than all of it":         {id + "0", false, false},
		"capitals":                    {strings.ToUpper(id), false, false},
		"a part that is not at first": {id[3:12], false, false},
		"a dash in a wrong place":     {"0199a-5f", false, false},
		"none where one must be":      {"0199a5f27", false, false},
		"what is no hexadecimal":      {"0199a5fg", false, false},
		"a letter of two bytes":       {"0199a5é", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			means := Means(tt.text, id)
			low, high, ok := IDRange(tt.text)

			require.Equal(t, tt.means, means)
			require.Equal(t, tt.uuid, ok)
			if ok {
				require.Equal(t, tt.means, low <= id && id <= high, "from %s to %s", low, high)
				require.Len(t, low, 36)
				require.Len(t, high, 36)
			}
		})
	}
	require.True(t, Means("x", "x"), "a short id is named whole")
}
