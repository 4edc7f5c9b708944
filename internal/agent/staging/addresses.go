package staging

import (
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"trainyard/internal/netguard"
)

// refusalText says that datasets are not fetched from an address.
func refusalText(r netguard.Refused) string {
	return fmt.Sprintf("%s is an address that datasets are not fetched from: loopback, link-local or metadata "+
		"(unless the operator of this node lists the host in --data-hosts)", r.Addr)
}

// transport sends requests directly, or through the proxy that the environment names. Private networks are not refused,
// because data sources are there.
type transport struct {
	guard           *netguard.Guard
	direct, proxied *http.Transport
}

func newTransport(hosts []string) *transport {
	g := netguard.New(netguard.MachineOnly, hosts)

	return &transport{
		guard:  g,
		direct: &http.Transport{DialContext: g.Dial, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute},
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
	if err == nil && netguard.MachineOnly(addr) && !t.guard.Lists(req.URL.Host) {
		return nil, netguard.Refused{Addr: addr}
	}

	return t.proxied.RoundTrip(req)
}

// CloseIdleConnections closes connections that are not in use.
func (t *transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}
