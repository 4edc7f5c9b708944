package auth

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
)

const nodeFile = "node.pem"

// NodeIdentity is the identity of an agent: its own key, which never leaves the machine, the CA it
// trusts and, once it has joined, its certificate. It is safe for concurrent use.
type NodeIdentity struct {
	key  atomic.Pointer[ecdsa.PrivateKey]
	ca   *x509.Certificate
	cert atomic.Pointer[tls.Certificate] // nil until the node has joined
}

func newNodeIdentity(key *ecdsa.PrivateKey, ca *x509.Certificate) *NodeIdentity {
	n := &NodeIdentity{ca: ca}
	n.key.Store(key)

	return n
}

// NewNodeIdentity creates a key for a machine that is about to join the yard of this CA. Save it
// before joining: if the answer is lost, the agent repeats the request with the same key.
func NewNodeIdentity(caPEM []byte) (*NodeIdentity, error) {
	ca, err := parseCACert(caPEM)
	if err != nil {
		return nil, err
	}

	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("create node identity: %w", err)
	}

	return newNodeIdentity(key, ca), nil
}

// LoadNodeIdentity reads the identity that Save wrote under dir. If there is none the error is of
// kind NotFound.
func LoadNodeIdentity(dir string) (*NodeIdentity, error) {
	path := filepath.Join(dir, nodeFile)
	data, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "node_not_joined", "this machine has not joined a yard: %s does not exist",
			path).
			WithRemedy("join it with trainyard agent join").
			WithCause(err)
	}

	if err != nil {
		return nil, fmt.Errorf("load node identity: %w", err)
	}

	n, err := parseNode(data)
	if err != nil {
		return nil, fault.New(fault.Internal, "node_identity_damaged", "the node's identity in %s is damaged: %v", path, err).
			WithRemedy("move the file away and join again with trainyard agent join").WithCause(err)
	}

	return n, nil
}

// parseNode parses the key, the CA and, if there is one, the certificate.
func parseNode(data []byte) (*NodeIdentity, error) {
	parts, err := parseBundle(data)
	if err != nil {
		return nil, err
	}
	if parts.key == nil || parts.ca == nil {
		return nil, errors.New("key or CA certificate is missing")
	}

	n := newNodeIdentity(parts.key, parts.ca)
	if parts.leaf == nil {
		return n, nil
	}
	if err := n.use(parts.leaf); err != nil {
		return nil, err
	}

	return n, nil
}

// Save writes the identity under dir with mode 0600. After a crash there is either the complete old
// or the complete new identity.
func (n *NodeIdentity) Save(dir string) error {
	if err := ownDir(dir); err != nil {
		return fmt.Errorf("save node identity: %w", err)
	}

	data, err := encodeKey(n.key.Load())
	if err != nil {
		return fmt.Errorf("save node identity: %w", err)
	}

	data = append(data, encodeCert(n.ca.Raw)...)
	if cert := n.cert.Load(); cert != nil {
		data = append(data, encodeCert(cert.Leaf.Raw)...)
	}

	if err := writeAtomic(filepath.Join(dir, nodeFile), data); err != nil {
		return fmt.Errorf("save node identity: %w", err)
	}

	return nil
}

// CSR returns the signing request for the server. The name is only a hint for people who read the
// request: the server determines the name of the node.
func (n *NodeIdentity) CSR(name string) ([]byte, error) { return signingRequest(n.key.Load(), name) }

// Successor returns an identity with a key of its own for the same yard. It takes the place of this one by Become, once
// it has a certificate and was saved.
func (n *NodeIdentity) Successor() (*NodeIdentity, error) {
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("renew node identity: %w", err)
	}

	return newNodeIdentity(key, n.ca), nil
}

// Become takes over the key and the certificate of its successor: handshakes from now on present them.
func (n *NodeIdentity) Become(next *NodeIdentity) {
	n.key.Store(next.key.Load())
	n.cert.Store(next.cert.Load())
}

// Install puts a certificate from the server into use: handshakes from now on present it. Open
// connections keep the certificate they began with, so close idle ones after a renewal. Call Save
// to keep the certificate over a restart.
func (n *NodeIdentity) Install(certPEM []byte) error {
	refuse := func(err error) error {
		return fault.New(fault.Internal, "node_certificate_unusable",
			"the server answered with a certificate that this node cannot use: %v", err).
			WithRemedy("check that this is the address of the server this machine joined").
			WithCause(err)
	}

	parts, err := parseBundle(certPEM)
	if err != nil {
		return refuse(err)
	}
	if parts.leaf == nil || parts.ca != nil || parts.key != nil {
		return refuse(errors.New("must contain exactly one node certificate"))
	}
	if err := n.use(parts.leaf); err != nil {
		return refuse(err)
	}

	return nil
}

// use checks that leaf is a certificate of a node, for this key and from this CA. It does not check
// the validity period: an expired identity must still load, so that the agent can report it.
func (n *NodeIdentity) use(leaf *x509.Certificate) error {
	key := n.key.Load()
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return errors.New("the certificate is for another key")
	}
	if err := leaf.CheckSignatureFrom(n.ca); err != nil {
		return fmt.Errorf("the certificate is not from the CA this node trusts: %w", err)
	}

	node, err := nodeIn(leaf)
	if err != nil {
		return errors.New("the certificate does not name a node")
	}
	if old := n.Node(); old != "" && old != node {
		return fmt.Errorf("the certificate is for node %s, but this is node %s", node, old)
	}

	n.cert.Store(&tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf})

	return nil
}

// Node returns the node's name, "" until it has joined.
func (n *NodeIdentity) Node() id.Node {
	cert := n.cert.Load()
	if cert == nil {
		return ""
	}

	return id.Node(cert.Leaf.Subject.CommonName)
}

// CAHash returns the hash of the CA that the node trusts.
func (n *NodeIdentity) CAHash() string { return HashOf(n.ca) }

// Expires returns the end of the certificate's validity, the zero time until the node has joined.
func (n *NodeIdentity) Expires() time.Time {
	cert := n.cert.Load()
	if cert == nil {
		return time.Time{}
	}

	return cert.Leaf.NotAfter
}

// NeedsRenewal reports whether two thirds of the certificate's validity are over, or there is no
// certificate yet.
func (n *NodeIdentity) NeedsRenewal(now time.Time) bool {
	cert := n.cert.Load()
	return cert == nil || due(cert.Leaf, now)
}

// Expired reports whether the certificate is not valid any more. A node that has none is not expired.
func (n *NodeIdentity) Expired(now time.Time) bool {
	cert := n.cert.Load()
	return cert != nil && !now.Before(cert.Leaf.NotAfter)
}

// JoinTLS returns the TLS configuration for joining: it trusts only the pinned CA and presents no certificate, because
// the server ends a handshake with one that has expired.
func (n *NodeIdentity) JoinTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: poolOf(n.ca)}
}

// TLS returns the TLS configuration of the agent: it trusts only the pinned CA, and presents the
// certificate that is installed at the time of a handshake, none until it has joined.
func (n *NodeIdentity) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		RootCAs:    poolOf(n.ca),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cert := n.cert.Load(); cert != nil {
				return cert, nil
			}

			return &tls.Certificate{}, nil
		},
	}
}

func signingRequest(key *ecdsa.PrivateKey, name string) ([]byte, error) {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("write signing request: %w", err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: pemCSR, Bytes: der}), nil
}
