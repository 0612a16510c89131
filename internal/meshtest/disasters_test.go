package meshtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/scale"
)

// Disasters may come one after the other, also before the mesh has settled from the last
// one: each side goes back to one of its last two copies, the link fails, and orders are given and
// done meanwhile. In the end every order that the hub knows has ended, and none ran twice.
// SPAWNMESH_DISASTERS tries more of them.
func TestDisastersOneAfterTheOther(t *testing.T) {
	t.Parallel()
	first := scale.Seed(t, "SPAWNMESH_DISASTER_SEED")
	for i := range uint64(scale.Larger(t, "SPAWNMESH_DISASTERS", 1, 2)) {
		t.Run(fmt.Sprint("seed ", first+i), func(t *testing.T) {
			t.Parallel()
			c := &calamity{t: t, m: Plan{Slots: 3}.Start(t, "attic"), dir: t.TempDir(), choice: rand.New(rand.NewPCG(first+i, 0)), backups: map[string][]string{}}
			c.backUp("hub")
			c.backUp("attic")
			for range 18 {
				c.happen()
				time.Sleep(time.Duration(c.choice.IntN(700)) * time.Millisecond)
			}
			c.settles()
		})
	}
}

type calamity struct {
	t       *testing.T
	m       *Mesh
	dir     string
	choice  *rand.Rand
	backups map[string][]string
	tasks   []string
	cut     bool
}

func (c *calamity) happen() {
	side := []string{"hub", "attic"}[c.choice.IntN(2)]
	switch n := c.choice.IntN(10); {
	case n < 4:
		c.order(1 + c.choice.IntN(4))
	case n < 6:
		c.backUp(side)
	case n < 8:
		c.restore(side)
	case c.cut:
		c.log("the link is mended")
		c.m.Spokes["attic"].Proxy.Heal()
		c.cut = false
	default:
		c.log("the link is cut")
		c.m.Spokes["attic"].Proxy.Cut()
		c.cut = true
	}
}

func (c *calamity) log(format string, args ...any) {
	c.t.Logf("%s "+format, append([]any{time.Now().Format("04:05.000")}, args...)...)
}

func (c *calamity) order(n int) {
	for range n {
		trace := filepath.Join(c.dir, fmt.Sprint("trace", len(c.tasks)))
		task := c.m.Spawn(c.t, "attic", "sh", "-c", `echo ran >>"$0"; sleep "$1"`, trace, fmt.Sprint(float64(c.choice.IntN(15))/10))
		c.log("order %d is %s", len(c.tasks), task)
		c.tasks = append(c.tasks, task)
	}
}

func (c *calamity) backUp(side string) {
	c.log("%s is copied", side)
	c.m.Stop(c.t, side)
	c.backups[side] = append(c.backups[side], c.m.instance(c.t, side).Backup(c.t))
	c.m.Start(c.t, side)
}

func (c *calamity) restore(side string) {
	n := len(c.backups[side]) - 1 - c.choice.IntN(min(2, len(c.backups[side])))
	c.log("%s goes back to copy %d", side, n)
	c.m.Stop(c.t, side)
	c.m.instance(c.t, side).Restore(c.t, c.backups[side][n])
	c.m.Start(c.t, side)
}

func (c *calamity) settles() {
	c.m.Spokes["attic"].Proxy.Heal()
	agreeAgain(c.t, c.m, "attic")
	for i, task := range c.tasks {
		if known := c.m.Hub.Count(c.t, `SELECT count(*) FROM mirrors WHERE task = $1`, task); known == 0 {
			c.log("order %d is lost with its hub", i)
			require.LessOrEqual(c.t, c.runs(i), 1, "order %d", i)
			continue
		}
		v := c.m.Wait(c.t, task)
		require.True(c.t, v.State.Terminal(), "order %d is %s", i, v.State)
		require.LessOrEqual(c.t, c.runs(i), 1, "order %d", i)
		if v.State == commands.Completed {
			require.Equal(c.t, 1, c.runs(i), "order %d", i)
		}
	}
}

// runs returns how often an order has run.
func (c *calamity) runs(i int) int {
	raw, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprint("trace", i)))
	require.True(c.t, err == nil || os.IsNotExist(err))
	return strings.Count(string(raw), "ran")
}
