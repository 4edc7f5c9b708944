// Package netguard connects to hosts that users have named, and to no address that is for this machine alone.
//
// Server and agent reach services that the users of the yard cannot: those of their own machine, the metadata
// service of a cloud, a private network. The address is checked when it is dialled, after the name was resolved,
// so that neither a redirect nor another answer of the name service leads around the check. Operators list the
// hosts that are allowed all the same.
package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Refused is the error about an address that is not connected to.
type Refused struct{ Addr netip.Addr }

func (r Refused) Error() string { return fmt.Sprintf("connections to %s are not allowed", r.Addr) }

// RefusalOf returns the refusal that caused an error.
func RefusalOf(err error) (Refused, bool) {
	var r Refused
	return r, errors.As(err, &r)
}

// machineOnly are addresses, besides those that are loopback or link-local, at which services trust the machine that
// reaches them: those at which clouds give it its credentials, and other ways to write loopback.
var machineOnly = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd20:ce::/32"),       // Google Cloud
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud
	netip.MustParsePrefix("0.0.0.0/8"),          // this host
}

// private are networks of an organisation, besides those that package netip knows.
var private = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"), // shared by the customers of a provider
	netip.MustParsePrefix("fec0::/10"),     // site-local
}

// nat64 are IPv6 addresses that stand for the IPv4 address in their last four bytes.
var nat64 = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}

// plain returns the address that an address stands for.
func plain(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if within(addr, nat64) {
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}

	return addr
}

// MachineOnly reports whether an address is for this machine alone: loopback, link-local, multicast and metadata
// addresses. Services there trust whoever reaches them.
func MachineOnly(addr netip.Addr) bool {
	addr = plain(addr)

	return addr.IsLoopback() || addr.IsUnspecified() || addr.IsLinkLocalUnicast() || addr.IsMulticast() ||
		within(addr, machineOnly)
}

// Internal reports whether an address is for this machine alone, or belongs to a private network.
func Internal(addr netip.Addr) bool {
	return MachineOnly(addr) || plain(addr).IsPrivate() || within(plain(addr), private)
}

func within(addr netip.Addr, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Guard connects to hosts. It is safe for concurrent use.
type Guard struct {
	allowed  map[string]bool // hosts, or hosts with a port, to which any address may belong
	networks []netip.Prefix  // that are allowed whatever is refused
	checked  net.Dialer
	direct   net.Dialer
}

const dialTimeout = 30 * time.Second

// New returns a guard that refuses addresses. Hosts, hosts with a port, addresses and networks such as 10.1.0.0/16 in
// the list are allowed.
func New(refuse func(netip.Addr) bool, allow []string) *Guard {
	g := &Guard{allowed: map[string]bool{}, direct: net.Dialer{Timeout: dialTimeout}}
	g.checked = net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("check the address %s: %w", address, err)
		}
		if refuse(to.Addr()) && !within(plain(to.Addr()), g.networks) {
			return Refused{to.Addr()}
		}

		return nil
	}}

	for _, entry := range allow {
		if network, err := netip.ParsePrefix(entry); err == nil {
			g.networks = append(g.networks, network)
			continue
		}

		g.allowed[strings.ToLower(entry)] = true
	}

	return g
}

// Lists reports whether the operator allows a host, whatever its address.
func (g *Guard) Lists(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)

	return g.allowed[strings.ToLower(hostPort)] || err == nil && g.allowed[strings.ToLower(host)]
}

// Dial connects to a host and port.
func (g *Guard) Dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	if g.Lists(hostPort) {
		return g.direct.DialContext(ctx, network, hostPort)
	}

	return g.checked.DialContext(ctx, network, hostPort)
}
