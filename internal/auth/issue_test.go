package auth_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/test/fuzzing"
)

// request writes a signing request with whatever key and wishes.
func request(tb testing.TB, key crypto.Signer) []byte {
	tb.Helper()

	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "someone-else", Organization: []string{"admins"}},
		DNSNames: []string{"yard.example.org"},
	}, key)
	if err != nil {
		tb.Fatal(err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func ecKey(tb testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}

	return key
}

func rsaKey(tb testing.TB, bits int) *rsa.PrivateKey {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		tb.Fatal(err)
	}

	return key
}

func parseCert(tb testing.TB, certPEM []byte) *x509.Certificate {
	tb.Helper()
	block, rest := pem.Decode(certPEM)
	if block != nil && len(rest) == 0 {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			tb.Fatal(err)
		}

		return cert
	}

	tb.Fatalf("not one PEM block: %q", certPEM)

	return nil
}

func TestANodeGetsOnlyTheNameWeGiveIt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)

	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	for name, key := range map[string]crypto.Signer{
		"P-256": ecKey(t, elliptic.P256()), "P-384": ecKey(t, elliptic.P384()), "Ed25519": edKey, "RSA 2048": rsaKey(t, 2048),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certPEM, expires, err := ca.SignNode(request(t, key), "gpu-1.rack_2", 24*time.Hour, now)
			if err != nil {
				t.Fatal(err)
			}

			cert := parseCert(t, certPEM)
			checkNodeCert(t, ca, cert, "gpu-1.rack_2")

			if !expires.Equal(cert.NotAfter) || expires.Sub(now) > 24*time.Hour || expires.Sub(now) < 24*time.Hour-time.Second {
				t.Errorf("the certificate ends %s after it was asked for, want 24h", expires.Sub(now))
			}

			if cert.Subject.Organization != nil || cert.DNSNames != nil {
				t.Errorf("wishes of the request were taken over: %v %v", cert.Subject, cert.DNSNames)
			}
		})
	}
}

// checkNodeCert checks all that must hold for any node certificate.
func checkNodeCert(t *testing.T, ca *auth.CA, cert *x509.Certificate, node id.Node) {
	t.Helper()

	if cert.Subject.CommonName != string(node) {
		t.Errorf("common name = %q, want %q", cert.Subject.CommonName, node)
	}

	if len(cert.URIs) != 1 || cert.URIs[0].String() != "trainyard://node/"+string(node) {
		t.Errorf("URIs = %v", cert.URIs)
	}

	if len(cert.ExtKeyUsage) != 1 || cert.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth || cert.IsCA ||
		cert.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Error("the certificate is for more than clients")
	}

	if err := cert.CheckSignatureFrom(parseCert(t, ca.PEM())); err != nil {
		t.Error(err)
	}
}

func TestBadSigningRequestsAreRefused(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	good := request(t, ecKey(t, elliptic.P256()))
	block, _ := pem.Decode(good)
	block.Bytes[len(block.Bytes)-1] ^= 1
	tests := []struct {
		name string
		csr  []byte
		code string
	}{
		{"empty", nil, "csr_invalid"},
		{"not PEM", []byte("hello"), "csr_invalid"},
		{"too long", append(bytes.Clone(good), bytes.Repeat([]byte("\n"), 20<<10)...), "csr_invalid"},
		{"two requests", append(bytes.Clone(good), good...), "csr_invalid"},
		{"a certificate", ca.PEM(), "csr_invalid"},
		{
			"not a request inside",
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte{1, 2, 3}}),
			"csr_invalid",
		},
		{"bad signature", pem.EncodeToMemory(block), "csr_invalid"},
		{"short RSA key", request(t, rsaKey(t, 1024)), "csr_key_weak"},
		{"weak curve", request(t, ecKey(t, elliptic.P224())), "csr_key_weak"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cert, _, err := ca.SignNode(tt.csr, "n1", time.Hour, now)
			wantFault(t, err, fault.Invalid, tt.code)

			if cert != nil {
				t.Error("a certificate was given all the same")
			}
		})
	}
}

func TestABadNameOrLifeOfANodeIsRefused(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)

	csr := request(t, ecKey(t, elliptic.P256()))
	for _, node := range []id.Node{"", "Upper", "a/b", "../x", "a b", "node\n", id.Node(strings.Repeat("a", 64))} {
		_, _, err := ca.SignNode(csr, node, time.Hour, now)
		wantFault(t, err, fault.Invalid, "node_name_invalid")
	}

	for _, ttl := range []time.Duration{0, -time.Hour, auth.MaxNodeLife + 1} {
		_, _, err := ca.SignNode(csr, "n1", ttl, now)
		wantFault(t, err, fault.Invalid, "node_life_invalid")
	}
}

func TestNoCertificateOutlivesTheCA(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	end := parseCert(t, ca.PEM()).NotAfter
	late := end.Add(-time.Hour)
	_, expires, err := ca.SignNode(request(t, ecKey(t, elliptic.P256())), "n1", 24*time.Hour, late)
	if err != nil {
		t.Fatal(err)
	}

	server, err := ca.ServerCertificate([]string{"localhost"}, late)
	if err != nil {
		t.Fatal(err)
	}

	if !expires.Equal(end) || !server.Leaf.NotAfter.Equal(end) {
		t.Errorf("node until %s, server until %s, CA until %s", expires, server.Leaf.NotAfter, end)
	}
}

func TestAServerCertificateIsForItsHosts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	cert, err := ca.ServerCertificate([]string{"Yard.example.org", "yard.example.org", "127.0.0.1", "::1", "my_yard"}, now)
	if err != nil {
		t.Fatal(err)
	}

	for _, host := range []string{"yard.example.org", "127.0.0.1", "::1"} {
		if err := cert.Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}

	if err := cert.Leaf.VerifyHostname("other.example.org"); err == nil {
		t.Error("the certificate is good for a host it was not asked for")
	}

	if len(cert.Leaf.DNSNames) != 2 || len(cert.Leaf.IPAddresses) != 2 {
		t.Errorf("names %v, addresses %v: want 2 and 2", cert.Leaf.DNSNames, cert.Leaf.IPAddresses)
	}

	if days := cert.Leaf.NotAfter.Sub(now).Hours() / 24; days < 89.9 || days > 90.1 {
		t.Errorf("the certificate is good for %.1f days, want 90", days)
	}

	if len(cert.Certificate) != 2 || !bytes.Equal(cert.Certificate[1], parseCert(t, ca.PEM()).Raw) {
		t.Error("the chain does not end with the CA")
	}
}

func TestBadHostsAreRefused(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	_, err := ca.ServerCertificate(nil, now)
	wantFault(t, err, fault.Invalid, "host_invalid")
	_, err = ca.ServerCertificate(make([]string, 101), now)
	wantFault(t, err, fault.Invalid, "host_invalid")

	for _, host := range []string{"", "*.example.org", "a..b", "https://yard", "yard:443", "[::1]", "-a", "a-", "a b", "é", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a"} {
		_, err := ca.ServerCertificate([]string{"localhost", host}, now)
		wantFault(t, err, fault.Invalid, "host_invalid")
	}
}

func FuzzSignNode(f *testing.F) {
	now := time.Now()
	ca := openCA(f, now)
	good := request(f, ecKey(f, elliptic.P256()))

	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}

	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(append(bytes.Clone(good), good...))
	f.Add(request(f, edKey))
	f.Add(request(f, rsaKey(f, 2048)))
	f.Add(request(f, ecKey(f, elliptic.P224())))
	f.Add(ca.PEM())
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"))
	f.Add([]byte{})
	f.Add(fuzzing.Long(good))
	f.Add(fuzzing.Long([]byte("-----BEGIN CERTIFICATE REQUEST-----\n")))

	f.Fuzz(func(t *testing.T, csr []byte) {
		defer fuzzing.Bounded(t)()

		certPEM, expires, err := ca.SignNode(csr, "n1", time.Hour, now)
		if err != nil {
			if certPEM != nil || fault.KindOf(err) != fault.Invalid {
				t.Fatalf("refused with %v of kind %s", err, fault.KindOf(err))
			}

			return
		}

		cert := parseCert(t, certPEM)
		checkNodeCert(t, ca, cert, "n1")

		if expires.After(now.Add(time.Hour)) {
			t.Error("the certificate lives longer than asked for")
		}
	})
}
