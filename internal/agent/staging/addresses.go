package staging

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// refusal is the error about an address that datasets are not fetched from.
type refusal struct{ addr netip.Addr }

func (r refusal) Error() string {
	return fmt.Sprintf("%s is an address that datasets are not fetched from: loopback, link-local or metadata "+
		"(unless the operator of this node lists the host in --data-hosts)", r.addr)
}

// refused returns the refusal that caused an error.
func refused(err error) (refusal, bool) {
	var r refusal
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

// nat64 are IPv6 addresses that stand for the IPv4 address in their last four bytes.
var nat64 = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}

// forbidden reports whether an address is for this machine alone: services that trust whoever reaches them. Private
// networks are not forbidden, because data sources are there.
func forbidden(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if within(addr, nat64) {
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}

	return addr.IsLoopback() || addr.IsUnspecified() || addr.IsLinkLocalUnicast() || addr.IsMulticast() ||
		within(addr, machineOnly)
}

func within(addr netip.Addr, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// dialer connects to data sources. The address is checked when it is dialled, so that neither a redirect nor another
// answer of the name service leads around the check.
type dialer struct {
	allowed map[string]bool // hosts, or hosts with a port, to which any address may belong
	checked net.Dialer
	plain   net.Dialer
}

const dialTimeout = 30 * time.Second

func newDialer(hosts []string) *dialer {
	d := &dialer{allowed: map[string]bool{}, plain: net.Dialer{Timeout: dialTimeout}}
	d.checked = net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("check the address %s: %w", address, err)
		}
		if forbidden(to.Addr()) {
			return refusal{to.Addr()}
		}

		return nil
	}}

	for _, h := range hosts {
		d.allowed[strings.ToLower(h)] = true
	}

	return d
}

// lists reports whether the operator allows a host, whatever its address.
func (d *dialer) lists(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)

	return d.allowed[strings.ToLower(hostPort)] || err == nil && d.allowed[strings.ToLower(host)]
}

// dial connects to a host and port.
func (d *dialer) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	if d.lists(hostPort) {
		return d.plain.DialContext(ctx, network, hostPort)
	}

	return d.checked.DialContext(ctx, network, hostPort)
}

// transport sends requests directly, or through the proxy that the environment names.
type transport struct {
	dialer          *dialer
	direct, proxied *http.Transport
}

func newTransport(hosts []string) *transport {
	d := newDialer(hosts)

	return &transport{
		dialer: d,
		direct: &http.Transport{DialContext: d.dial, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute},
		proxied: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
		},
	}
}

// RoundTrip implements http.RoundTripper. What a name means behind a proxy is the proxy's business; an address that is
// written out is refused here.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	proxy, err := http.ProxyFromEnvironment(req)
	if err != nil {
		return nil, fmt.Errorf("find the proxy: %w", err)
	}
	if proxy == nil {
		return t.direct.RoundTrip(req)
	}

	addr, err := netip.ParseAddr(req.URL.Hostname())
	if err == nil && forbidden(addr) && !t.dialer.lists(req.URL.Host) {
		return nil, refusal{addr}
	}

	return t.proxied.RoundTrip(req)
}

// CloseIdleConnections closes connections that are not in use.
func (t *transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}
