package api

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What somebody has stored is read back from an answer as it was, whatever an encoder makes of it for web pages.
func TestStoredJSONComesBackAsItWas(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"a":"<b> & </b>"}`, `"\\u003c"`, `"\\\\u003c"`, `"\""`, `"a\tb\u0007"`, "\"line\u2028 paragraph\u2029\"", `null`, `[1.50,"ü"]`} {
		raw, err := json.Marshal(map[string]JSON{"v": JSON(text)})
		require.NoError(t, err)
		var back map[string]JSON

		require.NoError(t, json.Unmarshal(raw, &back))

		require.Equal(t, text, string(back["v"]), "%s", raw)
	}
}
