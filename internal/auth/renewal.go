package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

// renewalText begins what a proof signs, so that it is a proof of nothing else.
const renewalText = "trainyard renewal of a node certificate\n"

// Prove signs a signing request for another key with the node's present key: only who has both can renew.
func (n *NodeIdentity) Prove(csrPEM []byte) ([]byte, error) {
	sum := sha256.Sum256(append([]byte(renewalText), csrPEM...))

	proof, err := n.key.Load().Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("sign the renewal: %w", err)
	}

	return proof, nil
}

// CheckRenewal refuses a signing request that the key of the certificate has not signed: as its own, or with a proof.
func CheckRenewal(shown *x509.Certificate, csrPEM, proof []byte) error {
	csr, err := parseCSR(csrPEM)
	if err != nil {
		return err
	}

	if old, ok := shown.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && old.Equal(csr.PublicKey) {
		return nil // which signed the request
	}

	algorithm := x509.UnknownSignatureAlgorithm

	switch shown.PublicKey.(type) {
	case *ecdsa.PublicKey:
		algorithm = x509.ECDSAWithSHA256
	case ed25519.PublicKey:
		algorithm = x509.PureEd25519
	case *rsa.PublicKey:
		algorithm = x509.SHA256WithRSA
	}

	if err := shown.CheckSignature(algorithm, append([]byte(renewalText), csrPEM...), proof); err != nil {
		return fault.New(fault.Denied, "renewal_not_signed",
			"a renewal for another key must be signed with the key of the present certificate").
			WithField("proof").WithCause(err)
	}

	return nil
}

// Describe returns what identifies a certificate and its key.
func Describe(cert *x509.Certificate) (fleet.Certificate, error) {
	key, err := x509.MarshalPKIXPublicKey(cert.PublicKey)
	if err != nil {
		return fleet.Certificate{}, fmt.Errorf("read the key of a certificate: %w", err)
	}

	sum, keySum := sha256.Sum256(cert.Raw), sha256.Sum256(key)

	return fleet.Certificate{
		Fingerprint: hex.EncodeToString(sum[:]), Key: hex.EncodeToString(keySum[:]), Issued: cert.NotBefore.UTC(),
	}, nil
}

// DescribePEM is Describe of a certificate in PEM.
func DescribePEM(certPEM []byte) (fleet.Certificate, error) {
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return fleet.Certificate{}, errors.New("read a certificate: it is not PEM")
	}

	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fleet.Certificate{}, fmt.Errorf("read a certificate: %w", err)
	}

	return Describe(cert)
}
