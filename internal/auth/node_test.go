package auth_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/fault"
)

func TestANodeIdentityIsSavedAndLoaded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	dir := filepath.Join(t.TempDir(), "identity")
	_, err := auth.LoadNodeIdentity(dir)
	wantFault(t, err, fault.NotFound, "node_not_joined")

	made, err := auth.NewNodeIdentity(ca.PEM())
	if err != nil {
		t.Fatal(err)
	}

	if err := made.Save(dir); err != nil {
		t.Fatal(err)
	}

	// The agent dies before the answer to its join: it goes on with the same key.
	n, err := auth.LoadNodeIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}

	if n.Node() != "" || !n.Expires().IsZero() || !n.NeedsRenewal(now) {
		t.Error("an identity without certificate claims to have joined")
	}

	install(t, ca, n, "gpu-1", now)

	if err := n.Save(dir); err != nil {
		t.Fatal(err)
	}

	again, err := auth.LoadNodeIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}

	if again.Node() != "gpu-1" || !again.Expires().Equal(n.Expires()) || again.CAHash() != ca.Hash() {
		t.Errorf("loaded node %q until %s", again.Node(), again.Expires())
	}

	install(t, ca, made, "gpu-1", now) // same key: the first identity takes it too

	info, err := os.Stat(filepath.Join(dir, "node.pem"))
	if err != nil {
		t.Fatal(err)
	}

	if info.Mode().Perm() != 0o600 {
		t.Errorf("node.pem has mode %04o", info.Mode().Perm())
	}
}

func TestADamagedNodeIdentityIsAnError(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)

	text := func(n *auth.NodeIdentity) []byte {
		dir := t.TempDir()
		if err := n.Save(dir); err != nil {
			t.Fatal(err)
		}

		data, err := os.ReadFile(filepath.Join(dir, "node.pem"))
		if err != nil {
			t.Fatal(err)
		}

		return data
	}

	whole, other := text(joined(t, ca, "gpu-1", now)), text(joined(t, ca, "gpu-1", now))
	cut := bytes.Index(whole, []byte("-----BEGIN CERT"))
	for name, data := range map[string][]byte{
		"empty":             {},
		"only the key":      whole[:cut],
		"key of another":    append(bytes.Clone(other[:cut]), whole[cut:]...),
		"truncated":         whole[:len(whole)-40],
		"key missing":       whole[cut:],
		"something else":    []byte("hello\n"),
		"other's CA joined": append(bytes.Clone(whole), openCA(t, now).PEM()...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "node.pem"), data, 0o600); err != nil {
				t.Fatal(err)
			}

			_, err := auth.LoadNodeIdentity(dir)
			wantFault(t, err, fault.Internal, "node_identity_damaged")
		})
	}
}

func TestANodeTakesOnlyACertificateForItself(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca, other := openCA(t, now), openCA(t, now)
	n := joined(t, ca, "gpu-1", now)
	csr, err := n.CSR("gpu-1")
	if err != nil {
		t.Fatal(err)
	}

	sign := func(ca *auth.CA, csr []byte, name string) []byte {
		cert, _, err := ca.SignNode(csr, "gpu-1", time.Hour, now)
		if name != "" {
			cert, _, err = ca.SignNode(csr, "gpu-2", time.Hour, now)
		}

		if err != nil {
			t.Fatal(err)
		}

		return cert
	}

	strange, err := auth.NewNodeIdentity(ca.PEM())
	if err != nil {
		t.Fatal(err)
	}

	stranger, err := strange.CSR("x")
	if err != nil {
		t.Fatal(err)
	}

	before := n.Expires()

	for name, cert := range map[string][]byte{
		"for another key": sign(ca, stranger, ""),
		"of another CA":   sign(other, csr, ""),
		"another node's":  sign(ca, csr, "gpu-2"),
		"the CA's":        ca.PEM(),
		"none":            nil,
		"garbage":         []byte("hello"),
	} {
		err := n.Install(cert)
		if codeOf(err) != "node_certificate_unusable" {
			t.Errorf("%s: error = %v", name, err)
		}
	}

	if !n.Expires().Equal(before) {
		t.Error("a refused certificate replaced the good one")
	}

	if err := n.Install(sign(ca, csr, "")); err != nil {
		t.Error(err)
	}
}

func TestARenewedCertificateIsUsedByTheNextHandshake(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	n := joined(t, ca, "gpu-1", now.Add(-29*24*time.Hour))
	if !n.NeedsRenewal(now) {
		t.Error("a certificate in its last day needs no renewal")
	}

	client := clientWith(t, n.TLS())
	clk := newClock(now)
	addr := serve(t, ca, serverTLS(t, ca, clk, "127.0.0.1"))
	if got, err := get(t, client, addr); err != nil || got != "HTTP/2.0 gpu-1" {
		t.Fatalf("answer = %q, %v", got, err)
	}

	clk.add(2 * 24 * time.Hour)

	if got, err := get(t, client, addr); err != nil || got != "node_certificate_expired" {
		t.Fatalf("on the old connection: answer = %q, %v", got, err)
	}

	install(t, ca, n, "gpu-1", clk.Now())
	client.CloseIdleConnections()

	if got, err := get(t, client, addr); err != nil || got != "HTTP/2.0 gpu-1" {
		t.Errorf("after the renewal: answer = %q, %v", got, err)
	}
}

func TestRenewalIsDueAtTwoThirdsOfLife(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ca := openCA(t, now)
	n, err := auth.NewNodeIdentity(ca.PEM())
	if err != nil {
		t.Fatal(err)
	}

	csr, err := n.CSR("x")
	if err != nil {
		t.Fatal(err)
	}

	for _, ttl := range []time.Duration{3 * time.Minute, 3 * time.Hour, 30 * 24 * time.Hour} {
		cert, _, err := ca.SignNode(csr, "gpu-1", ttl, now)
		if err != nil {
			t.Fatal(err)
		}

		if err := n.Install(cert); err != nil {
			t.Fatal(err)
		}

		for share, want := range map[float64]bool{0: false, 0.64: false, 0.69: true, 1.2: true} {
			if got := n.NeedsRenewal(now.Add(time.Duration(share * float64(ttl)))); got != want {
				t.Errorf("after %.0f%% of %s: due = %t, want %t", 100*share, ttl, got, want)
			}
		}

		if !n.NeedsRenewal(now.Add(-25 * time.Hour)) {
			t.Errorf("ttl %s: a certificate of the future needs no renewal", ttl)
		}
	}
}
