package auth_test

import (
	"context"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/fault"
)

// get asks the server for the name of the caller.
func get(t *testing.T, client *http.Client, addr string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr, nil)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}

	defer func() { _ = resp.Body.Close() }()

	body, err := io.ReadAll(resp.Body)

	return strings.TrimSpace(string(body)), err
}

func clientWith(t *testing.T, cfg *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)

	return &http.Client{Transport: transport}
}

func pinned(t *testing.T, ca *auth.CA) *tls.Config {
	t.Helper()
	cfg, err := auth.PinnedTLS(ca.PEM())
	if err != nil {
		t.Fatal(err)
	}

	return cfg
}

func TestServerAndNodeKnowEachOtherByMutualTLS(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	addr := serve(t, ca, serverTLS(t, ca, newClock(now), "127.0.0.1"))
	got, err := get(t, clientWith(t, joined(t, ca, "gpu-1", now).TLS()), addr)
	if err != nil || got != "HTTP/2.0 gpu-1" {
		t.Errorf("answer = %q, %v; want HTTP/2.0 gpu-1", got, err)
	}
}

func TestAClientWithoutCertificateIsServedButIsNoNode(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	addr := serve(t, ca, serverTLS(t, ca, newClock(now), "127.0.0.1"))

	unjoined, err := auth.NewNodeIdentity(ca.PEM())
	if err != nil {
		t.Fatal(err)
	}

	for name, cfg := range map[string]*tls.Config{"person": pinned(t, ca), "node before its join": unjoined.TLS()} {
		got, err := get(t, clientWith(t, cfg), addr)
		if err != nil || got != "node_certificate_missing" {
			t.Errorf("%s: answer = %q, %v", name, got, err)
		}
	}
}

func TestWrongCertificatesEndTheHandshake(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca, other := openCA(t, now), openCA(t, now)
	clk := newClock(now)
	addr := serve(t, ca, serverTLS(t, ca, clk, "127.0.0.1"))

	server, err := ca.ServerCertificate([]string{"127.0.0.1"}, now)
	if err != nil {
		t.Fatal(err)
	}

	asClient := pinned(t, ca)
	asClient.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &server, nil }
	stranger := joined(t, other, "gpu-1", now).TLS()
	stranger.RootCAs = pinned(t, ca).RootCAs
	expired := joined(t, ca, "gpu-1", now.Add(-31*24*time.Hour)).TLS()
	old := pinned(t, ca)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for name, cfg := range map[string]*tls.Config{
		"server certificate as a client's": asClient,
		"node of another CA":               stranger,
		"expired node certificate":         expired,
		"TLS 1.2":                          old,
		"client that pinned another CA":    pinned(t, other),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if got, err := get(t, clientWith(t, cfg), addr); err == nil {
				t.Errorf("the server answered %q", got)
			}
		})
	}
}

func TestANodeCertificateCannotServe(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	node := joined(t, ca, "localhost", now)
	cert, err := node.TLS().GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}

	rogue := *cert
	rogue.Certificate = append(rogue.Certificate[:1:1], parseCert(t, ca.PEM()).Raw)
	addr := serve(t, ca, &tls.Config{Certificates: []tls.Certificate{rogue}, Time: time.Now})
	for _, name := range []string{"", "localhost"} {
		cfg := pinned(t, ca)
		cfg.ServerName = name
		if got, err := get(t, clientWith(t, cfg), addr); err == nil {
			t.Errorf("a client that wants %q believed the node and got %q", name, got)
		}
	}

	_, _, err = auth.FetchCA(t.Context(), addr, ca.Hash())
	wantFault(t, err, fault.Denied, "server_name_mismatch")
}

// Should a client certificate ever come to hold a host name, it still must not
// serve: its use is checked, not only its names.
func TestACertificateForClientsCannotServeEvenWithTheRightHost(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dir := t.TempDir()
	ca, err := auth.OpenCA(dir, now)
	if err != nil {
		t.Fatal(err)
	}

	signer, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}

	key := ecKey(t, elliptic.P256())

	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, parseCert(t, ca.PEM()), key.Public(), signer.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}

	chain := [][]byte{der, parseCert(t, ca.PEM()).Raw}
	addr := serve(
		t,
		ca,
		&tls.Config{Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: key}}, Time: time.Now},
	)

	_, _, err = auth.FetchCA(t.Context(), addr, ca.Hash())
	wantFault(t, err, fault.Denied, "server_certificate_invalid")

	if got, err := get(t, clientWith(t, pinned(t, ca)), addr); err == nil {
		t.Errorf("a client believed it and got %q", got)
	}
}

func TestNodeOfChecksTheConnectionAsItIsNow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca, other := openCA(t, now), openCA(t, now)
	state := func(ca *auth.CA, cert *x509.Certificate) *tls.ConnectionState {
		root := parseCert(t, ca.PEM())
		return &tls.ConnectionState{
			PeerCertificates: []*x509.Certificate{cert},
			VerifiedChains:   [][]*x509.Certificate{{cert, root}},
		}
	}

	leaf := func(ca *auth.CA) *x509.Certificate {
		cert, err := joined(t, ca, "gpu-1", now).TLS().GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}

		return cert.Leaf
	}

	server, err := ca.ServerCertificate([]string{"localhost"}, now)
	if err != nil {
		t.Fatal(err)
	}

	renamed := *leaf(ca)
	renamed.Subject.CommonName = "gpu-2"
	good := state(ca, leaf(ca))
	unverified := state(ca, leaf(ca))
	unverified.VerifiedChains = nil

	for _, at := range []time.Time{now, now.Add(-23 * time.Hour)} { // clocks differ
		if node, err := ca.NodeOf(good, at); err != nil || node != "gpu-1" {
			t.Errorf("at %s: node = %q, %v", at, node, err)
		}
	}

	tests := []struct {
		name string
		cs   *tls.ConnectionState
		at   time.Time
		code string
	}{
		{"no TLS", nil, now, "node_certificate_missing"},
		{"no certificate", &tls.ConnectionState{}, now, "node_certificate_missing"},
		{"chain not verified", unverified, now, "node_certificate_invalid"},
		{"chain of another CA", state(other, leaf(other)), now, "node_certificate_invalid"},
		{"server's certificate", state(ca, server.Leaf), now, "node_certificate_invalid"},
		{"name and URI differ", state(ca, &renamed), now, "node_certificate_invalid"},
		{"expired since the handshake", good, now.Add(31 * 24 * time.Hour), "node_certificate_expired"},
		{"clock before its start", good, now.Add(-25 * time.Hour), "node_certificate_expired"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node, err := ca.NodeOf(tt.cs, tt.at)
			wantFault(t, err, fault.Unknown, tt.code)

			if node != "" {
				t.Errorf("node = %q all the same", node)
			}
		})
	}
}

func TestTheServerRenewsItsCertificate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	clk := newClock(now)
	identity, err := ca.NewServerIdentity([]string{"127.0.0.1"}, clk)
	if err != nil {
		t.Fatal(err)
	}

	current := func() *x509.Certificate {
		cert, err := identity.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}

		return cert.Leaf
	}

	first := current()
	clk.add(59 * 24 * time.Hour)

	if !current().Equal(first) {
		t.Error("renewed before two thirds of its life")
	}

	clk.add(2 * 24 * time.Hour)
	var wg sync.WaitGroup

	seen := make([]*x509.Certificate, 8)
	for i := range seen {
		wg.Go(func() {
			if cert, err := identity.GetCertificate(nil); err == nil {
				seen[i] = cert.Leaf
			}
		})
	}

	wg.Wait()

	second := current()
	if second.Equal(first) || !second.NotAfter.After(first.NotAfter) {
		t.Error("not renewed after two thirds of its life")
	}

	for _, cert := range seen {
		if cert == nil || !cert.Equal(second) {
			t.Error("handshakes at one time got different certificates")
		}
	}

	clk.add(-100 * 24 * time.Hour)

	if third := current(); !third.NotBefore.Before(clk.Now()) {
		t.Error("after the clock went back the certificate lies in the future")
	}

	clk.add(12 * 365 * 24 * time.Hour)
	_, err = identity.GetCertificate(nil)
	wantFault(t, err, fault.Unavailable, "ca_expired")
}

func TestFetchCA(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca, other := openCA(t, now), openCA(t, now)
	addr := serve(t, ca, serverTLS(t, ca, newClock(now), "127.0.0.1"))
	for name, want := range map[string]string{"first use": "", "known hash": ca.Hash(), "hash in capitals": strings.ToUpper(ca.Hash())} {
		caPEM, hash, err := auth.FetchCA(t.Context(), addr, want)
		if err != nil || hash != ca.Hash() || string(caPEM) != string(ca.PEM()) {
			t.Errorf("%s: hash %s, %v", name, hash, err)
		}
	}

	foreign, err := other.ServerCertificate([]string{"127.0.0.1"}, now)
	if err != nil {
		t.Fatal(err)
	}

	foreign.Certificate[1] = parseCert(t, ca.PEM()).Raw
	mixed := serve(t, ca, &tls.Config{Certificates: []tls.Certificate{foreign}, Time: time.Now})
	lone := foreign
	lone.Certificate = foreign.Certificate[:1]
	withoutCA := serve(t, ca, &tls.Config{Certificates: []tls.Certificate{lone}, Time: time.Now})
	elsewhere := serve(t, ca, serverTLS(t, ca, newClock(now), "yard.example.org", "192.0.2.1"))
	long := serve(t, ca, serverTLS(t, ca, newClock(now.Add(-400*24*time.Hour)), "127.0.0.1"))
	tests := []struct {
		name, addr, hash string
		kind             fault.Kind
		code             string
	}{
		{"another hash", addr, other.Hash(), fault.Denied, "ca_mismatch"},
		{"half a hash", addr, ca.Hash()[:32], fault.Invalid, "ca_hash_invalid"},
		{"leaf of another CA", mixed, ca.Hash(), fault.Denied, "server_certificate_invalid"},
		{"leaf of another CA at first use", mixed, "", fault.Denied, "server_certificate_invalid"},
		{"no CA in the chain", withoutCA, "", fault.Denied, "ca_missing"},
		{"another host", elsewhere, ca.Hash(), fault.Denied, "server_name_mismatch"},
		{"expired server certificate", long, ca.Hash(), fault.Denied, "server_certificate_invalid"},
		{"no port", "127.0.0.1", "", fault.Invalid, "address_invalid"},
		{"no host", ":443", "", fault.Invalid, "address_invalid"},
		{"not TLS", plainServer(t), "", fault.Unavailable, "server_not_tls"},
		{"nobody there", closedPort(t), "", fault.Unavailable, "server_unreachable"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			caPEM, hash, err := auth.FetchCA(t.Context(), tt.addr, tt.hash)
			wantFault(t, err, tt.kind, tt.code)

			if caPEM != nil || hash != "" {
				t.Error("a CA was returned all the same")
			}
		})
	}
}

func TestFetchCAStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = ln.Close() }()

	ctx, cancel := context.WithCancel(t.Context())
	accepted := make(chan net.Conn, 1)
	go func() { // a server that takes the connection and then says nothing
		if conn, err := ln.Accept(); err == nil {
			accepted <- conn
			cancel()
		}
	}()

	_, _, err = auth.FetchCA(ctx, ln.Addr().String(), "")
	wantFault(t, err, fault.Unavailable, "server_unreachable")

	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want that of the context", err)
	}

	_ = (<-accepted).Close()
	cancel()
}

// plainServer is an HTTP server without TLS.
func plainServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()

	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})

	return ln.Addr().String()
}

// closedPort is an address where nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}

	return ln.Addr().String()
}

func TestOnlyOneCACertificateCanBePinned(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca, other := openCA(t, now), openCA(t, now)
	csr := request(t, ecKey(t, elliptic.P256()))
	leaf, _, err := ca.SignNode(csr, "n1", time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}

	for name, data := range map[string][]byte{
		"nothing":     nil,
		"no PEM":      []byte("hello"),
		"two CAs":     append(ca.PEM(), other.PEM()...),
		"a leaf":      leaf,
		"a truncated": ca.PEM()[:100],
	} {
		_, err := auth.PinnedTLS(data)
		wantFault(t, err, fault.Invalid, "ca_invalid")

		if _, err := auth.NewNodeIdentity(data); err == nil {
			t.Errorf("%s: a node trusts it", name)
		}
	}
}
