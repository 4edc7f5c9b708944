// Package auth holds the yard's own CA, the identities of server and nodes, and the tokens of
// people.
//
// The server opens the CA at its start and gets its certificate from it; an agent creates its own
// key and gets a short-lived certificate for it; the CLI pins the CA at login. A secret is shown
// once when it is minted; after that only its hash is stored, and Directory identifies its owner
// when it is presented. The package never writes a secret into a log or an error, never replaces a
// CA or a key that it cannot read, and stores no users and tokens: those belong to the yardmaster.
// The server, the agent and the CLI call it; package tenant decides what an identified caller may
// do.
package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"path/filepath"
	"time"

	"trainyard/internal/fault"
)

const (
	caFile = "ca.pem"
	caLife = 10 * 365 * 24 * time.Hour

	// skew is how far certificates are backdated, so that they are valid at once on a machine whose
	// clock is behind.
	skew = 24 * time.Hour

	pemKey  = "PRIVATE KEY"
	pemCert = "CERTIFICATE"
	pemCSR  = "CERTIFICATE REQUEST"
)

// CA signs the certificates of the yard's server and nodes. It is never
// changed after OpenCA and safe for concurrent use.
type CA struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
	hash string
}

// OpenCA loads the CA under dir, or creates it if there is none. The directory belongs to the CA
// and gets mode 0700. Key and certificate are in one file, ca.pem with mode 0600, so that a crash
// leaves both or neither. An existing file that is not a complete pair is an error and is not
// changed: with a new CA every node would have to join and every person to log in again. Only one
// process at a time may open a directory.
func OpenCA(dir string, now time.Time) (*CA, error) {
	if err := ownDir(dir); err != nil {
		return nil, fmt.Errorf("open CA: %w", err)
	}

	path := filepath.Join(dir, caFile)
	data, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = makeCA(now)
		if err == nil {
			err = writeAtomic(path, data)
		}
	}

	if err != nil {
		return nil, fmt.Errorf("open CA: %w", err)
	}

	ca, err := parseCA(data)
	if err != nil {
		return nil, fault.New(fault.Internal, "ca_damaged", "the CA in %s is damaged: %v", path, err).
			WithRemedy("restore the file from a backup; if you delete it, a new CA is created, every node must join again " +
				"and every user must log in again").
			WithCause(err)
	}

	if !now.Before(ca.cert.NotAfter) {
		return nil, fault.New(fault.Internal, "ca_expired", "the CA in %s expired on %s", path,
			ca.cert.NotAfter.Format(time.DateOnly)).
			WithRemedy("check the machine's clock; if it is right, move the file away: a new CA is created, every node must " +
				"join again and every user must log in again")
	}

	return ca, nil
}

// PEM returns a copy of the CA's certificate, for clients that must trust it.
func (ca *CA) PEM() []byte { return bytes.Clone(ca.pem) }

// Hash returns the hash by which tokens and people identify this CA; see HashOf.
func (ca *CA) Hash() string { return ca.hash }

// HashOf returns the SHA-256 of the certificate in lower-case hex.
func HashOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// makeCA creates a key and a certificate and returns both as PEM.
func makeCA(now time.Time) ([]byte, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}

	serial, err := newSerial()
	if err != nil {
		return nil, err
	}

	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: fmt.Sprintf("Trainyard CA %.8x", serial.Bytes())},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(caLife),
		IsCA:                  true,
		MaxPathLenZero:        true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create CA certificate: %w", err)
	}

	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}

	return append(keyPEM, encodeCert(der)...), nil
}

// parseCA parses what makeCA wrote and checks that the two belong together.
func parseCA(data []byte) (*CA, error) {
	parts, err := parseBundle(data)
	if err != nil {
		return nil, err
	}

	switch {
	case parts.key == nil:
		return nil, errors.New("no private key found")
	case parts.ca == nil || parts.leaf != nil:
		return nil, errors.New("must contain exactly one CA certificate")
	case !parts.key.PublicKey.Equal(parts.ca.PublicKey):
		return nil, errors.New("the private key does not match the certificate")
	}

	if err := parts.ca.CheckSignatureFrom(parts.ca); err != nil {
		return nil, fmt.Errorf("check the certificate's signature: %w", err)
	}

	return &CA{key: parts.key, cert: parts.ca, pem: encodeCert(parts.ca.Raw), hash: HashOf(parts.ca)}, nil
}

// bundle is the content of one of our PEM files; a missing part is nil.
type bundle struct {
	key  *ecdsa.PrivateKey
	ca   *x509.Certificate
	leaf *x509.Certificate
}

// parseBundle parses one of our PEM files. It accepts at most one key, one CA certificate and one
// other certificate, without text between them: a truncated or concatenated file must not pass for
// a complete one.
func parseBundle(data []byte) (bundle, error) {
	var b bundle
	for rest := bytes.TrimSpace(data); len(rest) > 0; {
		if !bytes.HasPrefix(rest, []byte("-----BEGIN ")) {
			return b, errors.New("contains data that is not PEM")
		}

		block, after := pem.Decode(rest)

		// Decode skips a truncated block and returns a later one.
		if block == nil || bytes.Count(rest[:len(rest)-len(after)], []byte("-----BEGIN ")) != 1 {
			return b, errors.New("truncated or not PEM")
		}
		if err := b.add(block); err != nil {
			return b, err
		}

		rest = bytes.TrimSpace(after)
	}

	return b, nil
}

// add adds one block to the bundle.
func (b *bundle) add(block *pem.Block) error {
	switch block.Type {
	case pemKey:
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			// The cause is dropped, because it could quote the key.
			return errors.New("the private key cannot be parsed")
		}

		key, ok := parsed.(*ecdsa.PrivateKey)
		if !ok || key.Curve != elliptic.P256() {
			return errors.New("the private key is not an ECDSA P-256 key")
		}
		if b.key != nil {
			return errors.New("contains two private keys")
		}

		b.key = key
	case pemCert:
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("parse certificate: %w", err)
		}

		place := &b.leaf
		if cert.IsCA {
			place = &b.ca
		}

		if *place != nil {
			return errors.New("contains two certificates of one kind")
		}

		*place = cert
	default:
		return fmt.Errorf("contains a %.40q block", block.Type)
	}

	return nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create key: %w", err)
	}

	return key, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("create serial number: %w", err)
	}

	return serial.Add(serial, big.NewInt(1)), nil // a serial number must be positive
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCert, Bytes: der})
}
