package isolation

import (
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const onlyIPv6 = "SPAWNMESH_TEST_ONLY_IPV6"

// A host that has no IPv4 can try out what confines its agents.
func TestAHostWithIPv6Alone(t *testing.T) {
	t.Parallel()
	if os.Getenv(onlyIPv6) != "" {
		takeIPv4(t)
		l, err := listenTCP()
		require.NoError(t, err)
		defer l.Close()
		require.Equal(t, netip.IPv6Loopback(), netip.MustParseAddrPort(l.Addr().String()).Addr())
		return
	}
	again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
	again.Env = append(os.Environ(), onlyIPv6+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		again.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		again.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := again.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

// takeIPv4 brings up the loopback of the process's own network, and takes its IPv4 address away.
func takeIPv4(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	up, err := unix.NewIfreq("lo")
	require.NoError(t, err)
	up.SetUint16(unix.IFF_UP)
	require.NoError(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up))
	none, err := unix.NewIfreq("lo")
	require.NoError(t, err)
	require.NoError(t, none.SetInet4Addr(make([]byte, 4)))
	require.NoError(t, unix.IoctlIfreq(fd, unix.SIOCSIFADDR, none))
}
