package supervisor
import ("testing";"time";"syscall";"github.com/stretchr/testify/require";"fmt")
func TestRate(t *testing.T) {
	ok := 0
	var el time.Duration
	for range 30 {
		spec, file := forkers(t)
		spec.NoCgroup = true
		a, _ := start(t, spec)
		eventually(t, "many generations", func() bool { return generations(t, file) > 20 })
		require.NoError(t, a.shim.Signal(syscall.SIGSTOP)) // it must not help
		b := time.Now()
		_, err := newTree(newMarker(), a.run.Shim, nil).kill()
		el += time.Since(b)
		require.NoError(t, err)
		before := generations(t, file)
		time.Sleep(50 * time.Millisecond) // ten generations
		if before == generations(t, file) { ok++ }
		require.NoError(t, a.shim.Signal(syscall.SIGCONT))
		require.Equal(t, Signalled, ended(t, a).Outcome)
	}
	fmt.Println("ok", ok, "of 30", el/30)
}
