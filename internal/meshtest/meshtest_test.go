package meshtest

import "testing"

func TestMain(m *testing.M) { Main(m) }

func TestAMeshWorks(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic", "cellar")

	noop, echo := m.Noop(t, "attic"), m.Spawn(t, "cellar", "echo", "hi")

	m.Wait(t, noop)
	m.Wait(t, echo)
	m.Check(t)
}
