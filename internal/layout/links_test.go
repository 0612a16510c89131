package layout

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	mdCode    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Every link in a document to a file of this tree leads to one, and to a heading that it has.
func TestLinksOfDocuments(t *testing.T) {
	t.Parallel()
	const root = "../.."
	out, err := exec.Command("git", "-C", root, "ls-files", "*.md").Output()
	require.NoError(t, err)
	read := func(path string) string {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(raw)
	}
	links := 0
	for _, name := range strings.Fields(string(out)) {
		path := filepath.Join(root, name)
		for _, m := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(read(path), ""), -1) {
			file, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, ":") {
				continue // of another host
			}
			links++
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s is not there", name, m[1])
				continue
			}
			if heading != "" && strings.HasSuffix(to, ".md") && !anchors(read(to))[heading] {
				t.Errorf("%s: %s has no such heading", name, m[1])
			}
		}
	}
	require.Greater(t, links, 50)
}

// anchors are what the headings of a document are named in links.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range mdHeading.FindAllStringSubmatch(regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, ""), -1) {
		slug := notInSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), "")
		all[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return all
}
