package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"trainyard/internal/clock"
)

// peerURI is the URI by which a certificate says that it belongs to a server of the yard.
const peerURI = "trainyard://server/peer"

// PeerTLS returns the TLS configuration with which a server of the yard calls another: it trusts this CA
// alone and presents a certificate that only a holder of the CA's key can make.
func (ca *CA) PeerTLS(clk clock.Clock) *tls.Config {
	var mu sync.Mutex
	var current *tls.Certificate

	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		RootCAs:    poolOf(ca.cert),
		Time:       clk.Now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			mu.Lock()
			defer mu.Unlock()

			if current != nil && !due(current.Leaf, clk.Now()) {
				return current, nil
			}

			cert, err := ca.peerCertificate(clk.Now())
			if err != nil {
				return nil, err
			}

			current = &cert

			return current, nil
		},
	}
}

func (ca *CA) peerCertificate(now time.Time) (tls.Certificate, error) {
	uri, err := url.Parse(peerURI)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue a certificate for other servers: %w", err)
	}

	key, err := newKey()
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue a certificate for other servers: %w", err)
	}

	cert, err := ca.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "trainyard server"},
		URIs:        []*url.URL{uri},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key.Public(), serverLife, now)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue a certificate for other servers: %w", err)
	}

	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

// IsPeer reports whether another server of the yard is at the other end of a connection.
func (ca *CA) IsPeer(cs *tls.ConnectionState, now time.Time) bool {
	if cs == nil || len(cs.PeerCertificates) == 0 || !slices.ContainsFunc(cs.VerifiedChains, ca.endsChain) {
		return false
	}

	leaf := cs.PeerCertificates[0]
	valid := !now.Before(leaf.NotBefore) && now.Before(leaf.NotAfter)
	client := slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth})

	return valid && client && len(leaf.URIs) == 1 && leaf.URIs[0].String() == peerURI
}
