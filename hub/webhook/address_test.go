package webhook

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
)

// What a webhook cannot have is refused when it is made, however it is written.
func TestURLsThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, why := range map[string]string{
		"http://receiver.example.org/in":                               "its scheme is not https",
		"ftp://receiver.example.org/in":                                "its scheme is not https",
		"receiver.example.org/in":                                      "its scheme is not https",
		"https://":                                                     "it names no host",
		"https:receiver.example.org":                                   "it names no host",
		"https:///in":                                                  "it names no host",
		"https://me@receiver.example.org/in":                           "it names a user",
		"https://me:secret@receiver.example.org/in":                    "it names a user",
		"https://receiver.example.org/in#part":                         "it has a fragment",
		"https://receiver.example.org/in#":                             "it has a fragment",
		"https://receiver.example.org:8443/in":                         "its port is not 443",
		"https://receiver.example.org:/in":                             "its port is not 443",
		"https://receiver.example.org:22/in":                           "its port is not 443",
		"https://receiver.example.org/\x7f":                            "it is not one",
		"https://127.0.0.1/in":                                         "address 127.0.0.1 is not allowed",
		"https://127.1/in":                                             "neither a name nor an address",
		"https://0x7f000001/in":                                        "neither a name nor an address",
		"https://0x7f.0.0.1/in":                                        "neither a name nor an address",
		"https://2130706433/in":                                        "neither a name nor an address",
		"https://0177.0.0.1/in":                                        "neither a name nor an address",
		"https://127.0.0.1./in":                                        "neither a name nor an address",
		"https://127.0.0.0x1/in":                                       "neither a name nor an address",
		"https://①②⑦.⓪.⓪.①/in":                                         "neither a name nor an address",
		"https://%31%32%37.0.0.1/in":                                   "it is not one",
		"https://bücher.example.org/in":                                "neither a name nor an address",
		"https://a..example.org/in":                                    "neither a name nor an address",
		"https://[::1]/in":                                             "address ::1 is not allowed",
		"https://[::]/in":                                              "address :: is not allowed",
		"https://[::ffff:127.0.0.1]/in":                                "address ::ffff:127.0.0.1 is not allowed",
		"https://[::ffff:8.8.8.8]/in":                                  "is not allowed",
		"https://[::127.0.0.1]/in":                                     "is not allowed",
		"https://[64:ff9b::7f00:1]/in":                                 "is not allowed",
		"https://[64:ff9b:1::7f00:1]/in":                               "is not allowed",
		"https://[2002:7f00:1::]/in":                                   "is not allowed",
		"https://[2001::1]/in":                                         "is not allowed",
		"https://[2001:2::1]/in":                                       "is not allowed",
		"https://[2001:db8::1]/in":                                     "is not allowed",
		"https://[3fff::1]/in":                                         "is not allowed",
		"https://[fc00::1]/in":                                         "is not allowed",
		"https://[fd12:3456::1]/in":                                    "is not allowed",
		"https://[fe80::1]/in":                                         "is not allowed",
		"https://[fe80::1%25eth0]/in":                                  "has a zone",
		"https://[ff02::1]/in":                                         "is not allowed",
		"https://0.0.0.0/in":                                           "is not allowed",
		"https://10.1.2.3/in":                                          "is not allowed",
		"https://172.16.0.1/in":                                        "is not allowed",
		"https://172.31.255.255/in":                                    "is not allowed",
		"https://192.168.1.1/in":                                       "is not allowed",
		"https://169.254.169.254/latest/meta-data":                     "is not allowed",
		"https://100.100.100.200/in":                                   "is not allowed",
		"https://168.63.129.16/in":                                     "is not allowed",
		"https://192.0.0.8/in":                                         "is not allowed",
		"https://192.0.2.1/in":                                         "is not allowed",
		"https://198.18.0.1/in":                                        "is not allowed",
		"https://198.51.100.1/in":                                      "is not allowed",
		"https://203.0.113.1/in":                                       "is not allowed",
		"https://224.0.0.1/in":                                         "is not allowed",
		"https://255.255.255.255/in":                                   "is not allowed",
		"https://receiver.example.org/" + string(make([]byte, maxURL)): "it has more than 2048 bytes",
	} {
		err := CheckURL(text, 0, nil)
		require.ErrorContains(t, err, why, text)
		require.Equal(t, commands.Validation, commands.CodeOf(err))
		require.NotContains(t, err.Error(), "secret")
	}
	for _, text := range []string{"https://receiver.example.org/in?for=hub", "https://receiver.example.org:443", "https://RECEIVER.example.org./", "https://8.8.8.8/in", "https://[2606:4700::1111]/in", "https://a_b.example.org", "https://0x7f000001.example.org/"} {
		require.NoError(t, CheckURL(text, 0, nil), text)
	}
	require.NoError(t, CheckURL("https://receiver.example.org:8443/in", 8443, nil))
	require.ErrorContains(t, CheckURL("https://receiver.example.org:8443/in", 8444, nil), "its port is not 443")
}

// What the host of the hub allows is allowed, and no more.
func TestNetworksThatAreAllowed(t *testing.T) {
	t.Parallel()
	allow := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}
	for _, ip := range []string{"10.1.2.3", "fd00:1::5", "8.8.8.8"} {
		require.NoError(t, checkAddress(netip.MustParseAddr(ip), allow), ip)
	}
	for _, ip := range []string{"10.2.0.1", "127.0.0.1", "fd00:2::1", "::ffff:10.1.2.3"} {
		require.ErrorContains(t, checkAddress(netip.MustParseAddr(ip), allow), "address "+ip+" is not allowed for webhooks")
	}
}

// A webhook that wants what there is not is refused.
func TestWebhooksThatAreRefused(t *testing.T) {
	t.Parallel()
	const there = "https://receiver.example.org/in"
	r := newRig(t)
	_, err := r.sender.Create(t.Context(), New{Name: "there", URL: there}, "test")
	require.NoError(t, err)
	for want, n := range map[string]New{
		`webhooks are told of no "task.*"`: {Name: "x", URL: there, Types: []string{"task.*"}},
		`no agent has the state "done"`:    {Name: "x", URL: there, States: []string{"done"}},
		"states are of agents":             {Name: "x", URL: there, Types: []string{ConnectionLinkChanged}, States: []string{"failed"}},
		`name "Not A Name" is not`:         {Name: "Not A Name", URL: there},
		"a webhook named there is there":   {Name: "there", URL: there},
		"address 10.0.0.1 is not allowed":  {Name: "x", URL: "https://10.0.0.1"},
	} {
		_, err := r.sender.Create(t.Context(), n, "test")
		require.ErrorContains(t, err, want)
	}
	_, err = r.sender.Change(t.Context(), "there", "disabled", " ", "test")
	require.Error(t, err)
	_, err = r.sender.Change(t.Context(), "there", "paused", "", "test")
	require.ErrorContains(t, err, "neither active nor disabled")
	_, err = r.sender.Test(t.Context(), "nowhere")
	require.Equal(t, commands.NotFound, commands.CodeOf(err))
}

// Who makes a webhook for a name that means this network now is told, and not refused: it may mean another address later.
func TestANameThatMeansNothingAllowedIsWarnedOf(t *testing.T) {
	t.Parallel()
	n := newNames(t)
	s := &Sender{Resolver: n.resolver()}
	warning := func(ip string) string {
		n.mean(net.ParseIP(ip))
		return s.Warning(t.Context(), "https://receiver.example.org/in")
	}
	require.Equal(t, "nothing is sent to receiver.example.org as long as that means 10.1.2.3: address 10.1.2.3 is not allowed for webhooks", warning("10.1.2.3"))
	require.Empty(t, warning("8.8.8.8"))
	s.Allow = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	require.Empty(t, warning("10.1.2.3"))
	require.NoError(t, n.conn.Close())
	require.Empty(t, s.Warning(t.Context(), "https://[2606:4700::1111]/in"), "an address was checked before")
}
