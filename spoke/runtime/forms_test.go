package runtime_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/runtime"
)

// without takes what forms cover out of a text.
func without(text string, forms []string) string {
	out := []byte(text)
	for _, f := range forms {
		for at := range text {
			if strings.HasPrefix(text[at:], f) {
				copy(out[at:], strings.Repeat("*", len(f)))
			}
		}
	}
	return regexp.MustCompile(`\*+`).ReplaceAllString(string(out), "*")
}

func TestFormsOfASecret(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"hunter2-and-more", "with a blank & <ü>/\"\\ +", "-----BEGIN KEY-----\nMIIBVgIBADANBgkqhkiG9w0B\nshort\n-----END KEY-----\n"} {
		forms := runtime.Forms([]string{secret})
		html, err := json.Marshal(secret)
		require.NoError(t, err)
		for name, text := range map[string]string{
			"itself":             "x" + secret + "x",
			"in a query":         "?a=" + url.QueryEscape(secret) + "&b",
			"in a path":          "/a/" + url.PathEscape(secret) + "/b",
			"in a URI component": strings.ReplaceAll(url.QueryEscape(secret), "+", "%20"),
			"in JSON":            `{"a":` + string(html) + `}`,
			"in hex":             hex.EncodeToString([]byte("x" + secret)),
			"in upper hex":       strings.ToUpper(hex.EncodeToString([]byte(secret))),
		} {
			out := without(text, forms)
			require.Contains(t, out, "*", name)
			require.Less(t, len(out), 32, "%s: %s", name, out)
		}
		for before := range 7 {
			for after := range 4 {
				text := strings.Repeat("b", before) + secret + strings.Repeat("a", after)
				for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
					out := without(enc.EncodeToString([]byte(text)), forms)
					require.Contains(t, out, "*")
					require.Less(t, len(out), 24, "%d before, %d after: %s", before, after, out)
				}
			}
		}
	}
	ascii := runtime.Forms([]string{"wörter-😀"})
	require.Contains(t, ascii, `w\u00f6rter-\ud83d\ude00`, "as Python writes it")
}

func TestShortSecretsAreNotLookedFor(t *testing.T) {
	t.Parallel()
	require.Empty(t, runtime.Forms([]string{"", "12345", " 1234 \n"}))
	require.Contains(t, runtime.Forms([]string{"123456\n"}), "123456", "a line feed at the end is none of it")
	lines := runtime.Forms([]string{"a line of some length\nshort!\n"})
	require.Contains(t, lines, "a line of some length")
	require.NotContains(t, lines, "short!")
}
