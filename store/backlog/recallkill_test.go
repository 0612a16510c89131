package backlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// The end of an attempt of before a restore waits for what its asker recalls, unless somebody has ended it, the asker itself or its host.
// A cancel that lets it finish is no such word: whether it has is what the asker knows.
func TestWhatIsKilledWaitsForNoRecall(t *testing.T) {
	t.Parallel()
	host := func(cancel string) func(scene, backlog.Kill) {
		return func(s scene, k backlog.Kill) { s.killedHere(k.Task, cancel) }
	}
	asker := func(cancel string) func(scene, backlog.Kill) {
		return func(s scene, k backlog.Kill) {
			k.Cancel = cancel
			s.killed(k)
		}
	}
	for name, tt := range map[string]struct {
		words []func(scene, backlog.Kill)
		waits bool
	}{
		"nobody":                                {nil, true},
		"its host":                              {[]func(scene, backlog.Kill){host("")}, false},
		"its host, a cancel":                    {[]func(scene, backlog.Kill){host(commands.CancelNow)}, false},
		"its host, a cancel that lets finish":   {[]func(scene, backlog.Kill){host(commands.CancelAfter)}, true},
		"its host, first the one, then a kill":  {[]func(scene, backlog.Kill){host(commands.CancelAfter), host("")}, false},
		"its asker":                             {[]func(scene, backlog.Kill){asker("")}, false},
		"its asker, a cancel":                   {[]func(scene, backlog.Kill){asker(commands.CancelNow)}, false},
		"its asker, a cancel that lets finish":  {[]func(scene, backlog.Kill){asker(commands.CancelAfter)}, true},
		"its asker, first the one, then a kill": {[]func(scene, backlog.Kill){asker(commands.CancelAfter), asker("")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := told(t)
			task := s.started().Task
			s.restored()

			for _, word := range tt.words {
				k := s.kill(s.request())
				k.Task = task
				word(s, k)
			}

			pasts, err := s.backlog.Pasts(t.Context(), []string{task})
			require.NoError(t, err)
			require.Equal(t, tt.waits, pasts[task].Asked)
		})
	}
}
