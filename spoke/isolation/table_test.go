package isolation

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/spoke/isolation/attack"
)

// kernels are the first versions of Linux with a version of Landlock.
var kernels = map[int]string{1: "5.13", 3: "6.2", 4: "6.7", 6: "6.12"}

// table is what docs/threats.md has: which attack is kept out by what. The other tests show
// that it is.
func table() string {
	var b strings.Builder
	b.WriteString("| an agent tries to | `user` | `landlock` | `user+landlock` | `bubble` |\n| --- | --- | --- | --- | --- |\n")
	for _, a := range attack.All() {
		user, landlock, both := "**gets through**", "**gets through**", "**gets through**"
		if a.Landlock > 0 {
			landlock = "refused"
			if a.Landlock > 1 {
				landlock += ", from Linux " + kernels[a.Landlock]
			}
			both = landlock
		}
		if a.Given() {
			both = user
		}
		if a.NeedsRoot() {
			landlock = "refused: it takes root"
		}
		if a.User {
			user, both = "refused", "refused"
		}
		bubble := "refused"
		if a.Network() {
			bubble = "refused where it has no network"
		}
		fmt.Fprintf(&b, "| %s (`%s`) | %s | %s | %s | %s |\n", a.What, a.Name, user, landlock, both, bubble)
	}
	return b.String()
}

func TestTheDocumentHasTheTable(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/threats.md")
	require.NoError(t, err)
	require.Contains(t, string(raw), table(), "write this into docs/threats.md:\n%s", table())
}
