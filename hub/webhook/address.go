package webhook

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

const maxURL = 2048

// global is where addresses of IPv6 are that anybody can be reached at.
var global = netip.MustParsePrefix("2000::/3")

// closed are networks in which a receiver cannot be, or must not: this host, its network, what clouds tell their hosts,
// and ways by which an address of IPv6 stands for one of IPv4.
var closed = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")

func prefixes(list ...string) (all []netip.Prefix) {
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// checkAddress refuses an address that nothing is sent to, unless a network of allow has it.
func checkAddress(ip netip.Addr, allow []netip.Prefix) error {
	if !ip.Is4In6() && within(ip, allow) {
		return nil
	}
	if ip.Is4() && !within(ip, closed) || ip.Is6() && global.Contains(ip) && !within(ip, closed) {
		return nil
	}
	return commands.Refuse(commands.Validation, "address %s is not allowed for webhooks", ip).
		Hinting("a receiver has a public address; which other networks it may be in, the host of the hub says: hub run --webhook-allow CIDR")
}

func within(ip netip.Addr, list []netip.Prefix) bool {
	for _, p := range list {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// hostName is a name of DNS. Its last part begins with a letter: what ends in a number is an address to some resolvers,
// however it is written.
var hostName = regexp.MustCompile(`^([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.)*[a-zA-Z]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.?$`)

// CheckURL refuses a URL that no webhook has: https to port 443, or to port where that is not 0, and nothing in it that
// others should not see. A name is looked up, and its address checked, whenever something is sent.
func CheckURL(text string, port int, allow []netip.Prefix) error {
	refuse := func(format string, args ...any) *commands.Refused {
		return commands.Refuse(commands.Validation, "a webhook cannot have this URL: "+format, args...).Hinting("it is like https://receiver.example.org/path")
	}
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return refuse("it has more than %d bytes", maxURL)
	case err != nil: // its words repeat it
		return refuse("it is not one")
	case u.Scheme != "https":
		return refuse("its scheme is not https")
	case u.User != nil:
		return refuse("it names a user; what is sent is signed, and needs no password")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return refuse("it has a fragment, which is never sent")
	case u.Opaque != "" || u.Host == "":
		return refuse("it names no host")
	}
	if p := u.Port(); p != "" || strings.HasSuffix(u.Host, ":") {
		if p != "443" && (port == 0 || p != strconv.Itoa(port)) {
			return refuse("its port is not 443").Hinting("if you mean it, name the port once more: --port N")
		}
	}
	return checkHost(u.Hostname(), allow, refuse)
}

// lookTime is how long a name may take to be looked up where nothing is sent yet.
const lookTime = 2 * time.Second

// Warning says why nothing would be sent to the host of a URL now: each address that its name has is refused. "" where one is
// not, or where it has none yet; what counts is the address at the moment of sending.
func (s *Sender) Warning(ctx context.Context, text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	ctx, done := context.WithTimeout(ctx, lookTime)
	defer done()
	list, _ := cmp.Or(s.Resolver, net.DefaultResolver).LookupNetIP(ctx, "ip", u.Hostname()) // without an address there is nothing to say
	for _, ip := range list {
		if err = checkAddress(ip.Unmap(), s.Allow); err == nil {
			return ""
		}
	}
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("nothing is sent to %s as long as that means %s: %v", u.Hostname(), list[len(list)-1].Unmap(), err)
}

func checkHost(host string, allow []netip.Prefix, refuse func(string, ...any) *commands.Refused) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return refuse("the address of its host has a zone")
		}
		return checkAddress(ip, allow)
	}
	if len(host) > 253 || !hostName.MatchString(host) {
		return refuse("its host %q is neither a name nor an address as it is usually written", commands.Clip(host))
	}
	return nil
}
