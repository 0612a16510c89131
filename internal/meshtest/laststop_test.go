package meshtest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A spoke that stops waits for its hub to confirm what it was told last, and says where the hub has not. For a hub that has no link, or
// has confirmed all, it does not wait.
func TestAStopSaysWhatItsHubHasNotConfirmed(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]struct{ open, linked bool }{
		"all is confirmed":                  {false, true},
		"some is not confirmed":             {true, true},
		"some is not, and there is no link": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Start(t, "attic")
			attic := m.Spokes["attic"]
			m.Wait(t, m.Noop(t, "attic"))
			Await(t, "that all is confirmed", func() bool { return attic.Count(t, `SELECT count(*) FROM open_outbox`) == 0 })
			if is.open {
				defer m.Hub.holdInbox(t)()
				task := m.Noop(t, "attic")
				Await(t, "what is not confirmed", func() bool {
					return attic.Count(t, `SELECT count(*) FROM tasks WHERE id = $1 AND state = 'completed'`, task) == 1 && attic.Count(t, `SELECT count(*) FROM open_outbox`) > 0
				})
			}
			if !is.linked {
				attic.Proxy.Cut()
				Await(t, "the end of the link", func() bool { return !attic.hub(t).Linked })
			}

			m.Stop(t, "attic")

			require.Equal(t, is.open && is.linked, strings.Contains(attic.Log.String(), "hubs have not confirmed yet"))
		})
	}
}
