package auth_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/fault"
)

func TestTheCAIsMadeOnceAndThenLoaded(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data", "ca")
	now := time.Now()
	first, err := auth.OpenCA(dir, now)
	if err != nil {
		t.Fatal(err)
	}

	again, err := auth.OpenCA(dir, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(first.PEM(), again.PEM()) || first.Hash() != again.Hash() {
		t.Error("the second start has another CA than the first")
	}

	block, _ := pem.Decode(first.PEM())
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}

	if got := auth.HashOf(cert); got != first.Hash() || len(got) != 64 {
		t.Errorf("hash = %s, HashOf = %s", first.Hash(), got)
	}

	if years := cert.NotAfter.Sub(now).Hours() / 24 / 365; years < 9.9 || years > 10.1 {
		t.Errorf("the CA is good for %.1f years", years)
	}

	if !cert.IsCA || !cert.MaxPathLenZero {
		t.Error("the certificate is not that of a CA for leaves alone")
	}
}

func TestTheCAIsClosedToOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}

	if _, err := auth.OpenCA(dir, time.Now()); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "ca.pem"): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}

		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %04o, want %04o", filepath.Base(path), info.Mode().Perm(), want)
		}
	}

	for _, mode := range []os.FileMode{0o644, 0o640, 0o620, 0o601} {
		if err := os.Chmod(filepath.Join(dir, "ca.pem"), mode); err != nil {
			t.Fatal(err)
		}

		_, err := auth.OpenCA(dir, time.Now())
		wantFault(t, err, fault.Internal, "key_exposed")
	}
}

func TestAKeyThatBelongsToAnotherUserIsRefused(t *testing.T) {
	t.Parallel()

	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root to give a file away")
		}

		t.Skip("needs root to give a file away")
	}

	dir := t.TempDir()
	if _, err := auth.OpenCA(dir, time.Now()); err != nil {
		t.Fatal(err)
	}

	if err := os.Chown(filepath.Join(dir, "ca.pem"), 40000, 0); err != nil {
		t.Fatal(err)
	}

	_, err := auth.OpenCA(dir, time.Now())
	wantFault(t, err, fault.Internal, "key_of_another_user")
}

func TestADamagedCAIsAnErrorAndIsLeftAlone(t *testing.T) {
	t.Parallel()
	pair := func() (key, cert []byte) {
		dir := t.TempDir()
		ca, err := auth.OpenCA(dir, time.Now())
		if err != nil {
			t.Fatal(err)
		}

		data, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}

		return bytes.TrimSuffix(data, ca.PEM()), ca.PEM()
	}

	key, cert := pair()
	otherKey, otherCert := pair()
	forged := bytes.Clone(cert)
	block, _ := pem.Decode(forged)
	block.Bytes[len(block.Bytes)-1] ^= 1
	leafOnly := joined(t, openCA(t, time.Now()), "n1", time.Now())

	leafDir := t.TempDir()
	if err := leafOnly.Save(leafDir); err != nil {
		t.Fatal(err)
	}

	leaf, err := os.ReadFile(filepath.Join(leafDir, "node.pem"))
	if err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name string
		data []byte
	}{
		{"empty", nil},
		{"only the key", key},
		{"only the certificate", cert},
		{"truncated certificate", append(bytes.Clone(key), cert[:len(cert)/2]...)},
		{"truncated key", key[:len(key)/2]},
		{"truncated key before a whole certificate", append(bytes.Clone(key[:len(key)/2]), cert...)},
		{"truncated certificate before a whole one", bytes.Join([][]byte{key, cert[:len(cert)/2], cert}, []byte("\n"))},
		{"key of another CA", append(bytes.Clone(otherKey), cert...)},
		{"two certificates", bytes.Join([][]byte{key, cert, otherCert}, nil)},
		{"two keys", bytes.Join([][]byte{key, otherKey, cert}, nil)},
		{"forged signature", append(bytes.Clone(key), pem.EncodeToMemory(block)...)},
		{"a node's identity", leaf},
		{"zeros after a power cut", make([]byte, 600)},
		{
			"a block of another kind",
			append(append(bytes.Clone(key), cert...), pem.EncodeToMemory(&pem.Block{Type: "NOTE", Bytes: []byte("x")})...),
		},
		{"text after the pair", append(append(bytes.Clone(key), cert...), "hello"...)},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "ca.pem")
			if err := os.WriteFile(path, tt.data, 0o600); err != nil {
				t.Fatal(err)
			}

			_, err := auth.OpenCA(dir, time.Now())
			wantFault(t, err, fault.Internal, "ca_damaged")

			after, readErr := os.ReadFile(path)
			if readErr != nil || !bytes.Equal(after, tt.data) {
				t.Errorf("the damaged file was changed (%v)", readErr)
			}
		})
	}
}

func TestAHalfWrittenFileOfACrashIsNoCA(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	leftover := filepath.Join(dir, ".ca.pem.new-123")
	if err := os.WriteFile(leftover, []byte("-----BEGIN PRIV"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := auth.OpenCA(dir, time.Now()); err != nil {
		t.Fatal(err)
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	if len(entries) != 1 || entries[0].Name() != "ca.pem" {
		t.Errorf("the folder holds %v, want ca.pem alone", entries)
	}
}

func TestAnExpiredCAIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	ca, err := auth.OpenCA(dir, now)
	if err != nil {
		t.Fatal(err)
	}

	late := now.Add(11 * 365 * 24 * time.Hour)
	_, err = auth.OpenCA(dir, late)
	wantFault(t, err, fault.Internal, "ca_expired")
	_, err = ca.ServerCertificate([]string{"localhost"}, late)
	wantFault(t, err, fault.Unavailable, "ca_expired")
}

func TestAFolderThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := auth.OpenCA(filepath.Join(file, "ca"), time.Now()); err == nil {
		t.Error("a CA was opened below a plain file")
	}
}
