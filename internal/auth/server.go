package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// ServerIdentity is the server's certificate, which it renews by itself. It is kept in memory only:
// each start of the server issues a new one.
type ServerIdentity struct {
	ca    *CA
	hosts []string
	clk   clock.Clock

	current  atomic.Pointer[tls.Certificate]
	renewing sync.Mutex
}

// NewServerIdentity issues the first certificate for a server with these hosts.
func (ca *CA) NewServerIdentity(hosts []string, clk clock.Clock) (*ServerIdentity, error) {
	s := &ServerIdentity{ca: ca, hosts: slices.Clone(hosts), clk: clk}
	cert, err := ca.ServerCertificate(s.hosts, clk.Now())
	if err != nil {
		return nil, err
	}

	s.current.Store(&cert)

	return s, nil
}

// GetCertificate returns the certificate for a handshake, and renews it after two thirds of its
// validity. It has the signature that tls.Config requires.
func (s *ServerIdentity) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := s.clk.Now()
	if cert := s.current.Load(); !due(cert.Leaf, now) {
		return cert, nil
	}

	s.renewing.Lock()
	defer s.renewing.Unlock()

	old := s.current.Load()
	if !due(old.Leaf, now) {
		return old, nil // another handshake has renewed it
	}

	cert, err := s.ca.ServerCertificate(s.hosts, now)
	if err == nil {
		s.current.Store(&cert)
		return &cert, nil
	}

	if now.After(old.Leaf.NotBefore) && now.Before(old.Leaf.NotAfter) {
		return old, nil // still valid: the next handshake tries again
	}

	return nil, err
}

// due reports whether one of our certificates should be renewed: two thirds of its validity are
// over, or the clock was set back to before its start. The backdating by skew is not counted,
// otherwise a short-lived certificate would be due at once.
func due(cert *x509.Certificate, now time.Time) bool {
	life := cert.NotAfter.Sub(cert.NotBefore) - skew
	return now.Before(cert.NotBefore) || !now.Before(cert.NotAfter.Add(-life/3))
}

// ServerTLS returns the TLS configuration of the server. Clients may present a certificate of this
// CA, and an invalid one ends the handshake; people present none. Sessions are not resumed, so that
// every connection proves its identity anew.
func (ca *CA) ServerTLS(identity *ServerIdentity) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		GetCertificate:         identity.GetCertificate,
		ClientAuth:             tls.VerifyClientCertIfGiven,
		ClientCAs:              poolOf(ca.cert),
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true,
		Time:                   identity.clk.Now,
	}
}

func poolOf(cert *x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// NodeOf returns the node at the other end of a connection. The handshake has checked the
// signatures; NodeOf checks that the certificate is from this CA and, because a connection may be
// old, that it is still valid now. It is cheap enough for every request. The caller must check
// whether the node is still part of the yard.
func (ca *CA) NodeOf(cs *tls.ConnectionState, now time.Time) (id.Node, error) {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return "", fault.New(fault.Unknown, "node_certificate_missing", "a node certificate is required").
			WithRemedy("join the machine with trainyard agent join")
	}

	if !slices.ContainsFunc(cs.VerifiedChains, ca.endsChain) {
		return "", badNode(errors.New("no verified chain ends at this CA"))
	}

	leaf := cs.PeerCertificates[0]
	if now.Before(leaf.NotBefore) || !now.Before(leaf.NotAfter) {
		return "", fault.New(fault.Unknown, "node_certificate_expired", "the node certificate is only valid from %s to %s",
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339)).
			WithRemedy("check the clocks; if they are right, join the machine again with a new join token: " +
				"trainyard agent join URL --token-file FILE")
	}

	return nodeIn(leaf)
}

// endsChain reports whether the chain is a leaf signed directly by this CA.
func (ca *CA) endsChain(chain []*x509.Certificate) bool {
	return len(chain) == 2 && chain[1].Equal(ca.cert)
}

// nodeIn returns the node's name in its certificate.
func nodeIn(leaf *x509.Certificate) (id.Node, error) {
	if !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		return "", badNode(errors.New("the certificate is not a client certificate only"))
	}
	if len(leaf.URIs) != 1 {
		return "", badNode(errors.New("the certificate must contain exactly one URI"))
	}

	name, ok := strings.CutPrefix(leaf.URIs[0].String(), "trainyard://node/")
	if !ok || !id.Name(name) || name != leaf.Subject.CommonName {
		return "", badNode(errors.New("the certificate does not name a node"))
	}

	return id.Node(name), nil
}

func badNode(cause error) error {
	return fault.New(fault.Unknown, "node_certificate_invalid", "the certificate does not belong to a node of this yard").
		WithRemedy("join the machine again with trainyard agent join").
		WithCause(cause)
}
