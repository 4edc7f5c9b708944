package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
)

const (
	serverLife = 90 * 24 * time.Hour

	// MaxNodeLife is the longest validity of a node's certificate.
	MaxNodeLife = 90 * 24 * time.Hour

	maxCSR   = 16 << 10
	maxHosts = 100
)

// ServerCertificate issues a certificate for a server with these names and addresses, valid for 90
// days and only for serving. The chain ends with the CA itself, so that FetchCA finds it there.
func (ca *CA) ServerCertificate(hosts []string, now time.Time) (tls.Certificate, error) {
	template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if err := addHosts(template, hosts); err != nil {
		return tls.Certificate{}, err
	}

	template.Subject = pkix.Name{CommonName: "trainyard server"}

	key, err := newKey()
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue server certificate: %w", err)
	}

	cert, err := ca.sign(template, key.Public(), serverLife, now)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue server certificate: %w", err)
	}

	return tls.Certificate{Certificate: [][]byte{cert.Raw, ca.cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

// addHosts sets the names and addresses of a server certificate.
func addHosts(template *x509.Certificate, hosts []string) error {
	if len(hosts) == 0 || len(hosts) > maxHosts {
		return fault.New(fault.Invalid, "host_invalid", "a server needs 1 to %d host names or addresses, got %d", maxHosts,
			len(hosts)).
			WithRemedy("give the host names under which the server is reached")
	}

	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			if !slices.ContainsFunc(template.IPAddresses, ip.Equal) {
				template.IPAddresses = append(template.IPAddresses, ip)
			}

			continue
		}

		name := strings.ToLower(host)
		if !hostName(name) {
			return fault.New(fault.Invalid, "host_invalid", "%.80q is neither a host name nor an IP address", host).
				WithRemedy("use a name such as yard.example.org, without scheme, port or brackets")
		}

		if !slices.Contains(template.DNSNames, name) {
			template.DNSNames = append(template.DNSNames, name)
		}
	}

	return nil
}

// hostName reports whether s is a lower-case DNS name. Underscores are accepted, because container
// networks use them; wildcards are not, because the CA should vouch only for names that are in use.
func hostName(s string) bool {
	if len(s) > 253 {
		return false
	}

	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}

		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}

	return true
}

// SignNode issues a certificate for the key in a node's signing request, valid for ttl but not
// beyond the end of the CA. Only the key is taken from the request: the caller determines the name
// of the node, and the certificate is always for clients only.
func (ca *CA) SignNode(
	csrPEM []byte,
	node id.Node,
	ttl time.Duration,
	now time.Time,
) (certPEM []byte, expires time.Time, err error) {
	if !id.Name(string(node)) {
		return nil, time.Time{}, fault.New(fault.Invalid, "node_name_invalid", "invalid node name %.80q", node).
			WithRemedy("use up to %d lower-case letters, digits, '-', '_' and '.', with a letter or digit at both ends",
				id.MaxName)
	}

	if ttl <= 0 || ttl > MaxNodeLife {
		return nil, time.Time{}, fault.New(fault.Invalid, "node_life_invalid", "invalid lifetime %s of a node certificate",
			ttl).
			WithRemedy("use at most %s", MaxNodeLife)
	}

	csr, err := parseCSR(csrPEM)
	if err != nil {
		return nil, time.Time{}, err
	}

	cert, err := ca.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: string(node)},
		URIs:        []*url.URL{nodeURI(node)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, csr.PublicKey, ttl, now)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("sign certificate of node %s: %w", node, err)
	}

	return encodeCert(cert.Raw), cert.NotAfter, nil
}

// nodeURI returns the URI by which a certificate names a node.
func nodeURI(node id.Node) *url.URL {
	return &url.URL{Scheme: "trainyard", Host: "node", Path: "/" + string(node)}
}

// sign fills in what all our certificates have in common, and signs.
func (ca *CA) sign(
	template *x509.Certificate,
	public any,
	life time.Duration,
	now time.Time,
) (*x509.Certificate, error) {
	if !now.Before(ca.cert.NotAfter) {
		return nil, fault.New(fault.Unavailable, "ca_expired", "the CA of the server expired on %s and can no longer sign "+
			"certificates", ca.cert.NotAfter.Format(time.DateOnly)).
			WithRemedy("an admin must create a new CA")
	}

	serial, err := newSerial()
	if err != nil {
		return nil, err
	}

	template.SerialNumber = serial
	template.NotBefore = now.Add(-skew)
	template.NotAfter = now.Add(life)
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}

	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true // and not a CA
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, public, ca.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read signed certificate: %w", err)
	}

	return cert, nil
}

// parseCSR parses a signing request, and checks that its key is strong and that the sender holds
// that key.
func parseCSR(csrPEM []byte) (*x509.CertificateRequest, error) {
	refuse := func(format string, args ...any) *fault.Error {
		return fault.New(fault.Invalid, "csr_invalid", "the certificate signing request "+format, args...).
			WithRemedy("send one PEM block of type %s, signed with the node's own key", pemCSR)
	}

	if len(csrPEM) > maxCSR {
		return nil, refuse("is longer than %d bytes", maxCSR)
	}

	block, rest := pem.Decode(csrPEM)
	if block == nil || block.Type != pemCSR || len(bytes.TrimSpace(rest)) > 0 {
		return nil, refuse("is not a single PEM block of that type")
	}

	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, refuse("cannot be read").WithCause(err)
	}

	if !strongKey(csr.PublicKey) {
		return nil, fault.New(fault.Invalid, "csr_key_weak", "the key of the certificate signing request is too weak or "+
			"of an unsupported type").
			WithRemedy("use an ECDSA P-256, P-384 or P-521 key, Ed25519, or RSA with 2048 to 4096 bits")
	}

	if err := csr.CheckSignature(); err != nil {
		return nil, refuse("is not signed with the key it names").WithCause(err)
	}

	return csr, nil
}

// strongKey reports whether a key is strong enough for a node. Very long RSA keys are refused as
// well, because they slow down each handshake.
func strongKey(public any) bool {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		return key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521()
	case ed25519.PublicKey:
		return true
	case *rsa.PublicKey:
		return key.N.BitLen() >= 2048 && key.N.BitLen() <= 4096 && key.E >= 65537
	}

	return false
}
