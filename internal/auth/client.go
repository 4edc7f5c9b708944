package auth

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"trainyard/internal/fault"
)

// PinnedTLS returns the TLS configuration of a client that trusts exactly this CA, whatever other
// authorities the machine trusts. The server's name is checked as usual: a server that is reached
// by a further name or address must have that host in its certificate (see ServerCertificate); a
// client behind a tunnel may set ServerName to one of its hosts.
func PinnedTLS(caPEM []byte) (*tls.Config, error) {
	ca, err := parseCACert(caPEM)
	if err != nil {
		return nil, err
	}

	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: poolOf(ca)}, nil
}

// PinnedHash returns the hash of a CA that a client has pinned, in the form that FetchCA takes.
func PinnedHash(caPEM []byte) (string, error) {
	ca, err := parseCACert(caPEM)
	if err != nil {
		return "", err
	}

	return HashOf(ca), nil
}

// parseCACert parses the CA certificate that a client pins.
func parseCACert(caPEM []byte) (*x509.Certificate, error) {
	parts, err := parseBundle(caPEM)
	if err == nil && (parts.ca == nil || parts.leaf != nil || parts.key != nil) {
		err = errors.New("must contain exactly one CA certificate")
	}

	if err != nil {
		return nil, fault.New(fault.Invalid, "ca_invalid", "the pinned CA certificate cannot be used: %v", err).
			WithRemedy("log in or join again to fetch it from the server").WithCause(err)
	}

	return parts.ca, nil
}

// FetchCA reads the CA of the server at addr (host:port). It returns the certificate and hash of
// the CA only if the server's own certificate is signed by it and valid for that host and, if
// wantHash is given, the hash matches. Without wantHash nothing vouches for the CA yet: show the
// hash to the person and pin only what they accept. Nothing but the handshake is sent to the
// server.
func FetchCA(ctx context.Context, addr, wantHash string) (caPEM []byte, hash string, err error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return nil, "", fault.New(fault.Invalid, "address_invalid", "invalid server address %.80q", addr).
			WithRemedy("use host:port, e.g. yard.example.org:7443").WithCause(err)
	}

	wantHash = strings.ToLower(wantHash)
	if wantHash != "" && !isHash(wantHash) {
		return nil, "", fault.New(fault.Invalid, "ca_hash_invalid", "the CA hash must be %d hexadecimal digits", hashLen).
			WithRemedy("copy it from the output of trainyard tokens create, or of the server's first start")
	}

	chain, err := presentedChain(ctx, addr, host)
	if err != nil {
		return nil, "", err
	}

	ca, err := chooseCA(chain, addr, wantHash)
	if err != nil {
		return nil, "", err
	}
	if err := verifyServer(chain[0], ca, addr, host); err != nil {
		return nil, "", err
	}

	return encodeCert(ca.Raw), HashOf(ca), nil
}

// presentedChain returns the certificates that the server presents. The handshake proves that it
// holds the key of the first; the caller must verify who signed that.
func presentedChain(ctx context.Context, addr, host string) (chain []*x509.Certificate, err error) {
	dialer := &tls.Dialer{Config: &tls.Config{
		MinVersion:         tls.VersionTLS13,
		ServerName:         host,
		InsecureSkipVerify: true, //nolint:gosec // FetchCA verifies against the CA it finds in the chain
	}}

	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		var notTLS tls.RecordHeaderError
		if errors.As(err, &notTLS) {
			return nil, fault.New(fault.Unavailable, "server_not_tls", "the server at %s does not speak TLS", addr).
				WithRemedy("check the address and port of the server").WithCause(err)
		}

		return nil, fault.New(fault.Unavailable, "server_unreachable", "cannot reach the server at %s: %v", addr, err).
			WithRemedy("check the address and that the server is running").WithCause(err)
	}

	defer func() { _ = conn.Close() }() // nothing was sent that could be lost

	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil, fmt.Errorf("fetch CA from %s: the connection is a %T, not TLS", addr, conn)
	}

	return secure.ConnectionState().PeerCertificates, nil
}

// chooseCA returns the CA certificate at the end of the chain.
func chooseCA(chain []*x509.Certificate, addr, wantHash string) (*x509.Certificate, error) {
	ca := chain[len(chain)-1]
	if len(chain) < 2 || !ca.IsCA {
		return nil, fault.New(fault.Denied, "ca_missing", "the server at %s does not present its CA certificate", addr).
			WithRemedy("connect to the server directly, not through a proxy that terminates TLS")
	}

	if hash := HashOf(ca); wantHash != "" && subtle.ConstantTimeCompare([]byte(hash), []byte(wantHash)) != 1 {
		return nil, fault.New(fault.Denied, "ca_mismatch", "the CA of the server at %s is %s, expected %s: this may be "+
			"another server or a man-in-the-middle attack", addr, hash, wantHash).
			WithRemedy("check the address; if the server has a new CA, ask an admin for a new token")
	}

	return ca, nil
}

// verifyServer checks that the server's certificate is signed by ca and valid for host.
func verifyServer(leaf, ca *x509.Certificate, addr, host string) error {
	name, _, _ := strings.Cut(host, "%") // certificates do not contain IPv6 zones
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:     poolOf(ca),
		DNSName:   name,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err == nil {
		return nil
	}

	var wrongName x509.HostnameError
	if errors.As(err, &wrongName) {
		return fault.New(fault.Denied, "server_name_mismatch", "the certificate of the server at %s is not valid for that "+
			"host, only for %s", addr, hostsOf(leaf)).
			WithRemedy("use one of those, or add this host to --hosts of the server").
			WithCause(err)
	}

	return fault.New(fault.Denied, "server_certificate_invalid", "the certificate of the server at %s is invalid: %v",
		addr, err).
		WithRemedy("check this machine's clock, then the server").
		WithCause(err)
}

// hostsOf lists the hosts of a server certificate. The text is safe to print although the
// certificate may come from a stranger.
func hostsOf(leaf *x509.Certificate) string {
	var hosts []string
	for _, name := range leaf.DNSNames {
		hosts = append(hosts, fmt.Sprintf("%.80q", name))
	}

	for _, ip := range leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}

	if len(hosts) > 10 {
		hosts = append(hosts[:10], "…")
	}

	return strings.Join(hosts, ", ")
}
