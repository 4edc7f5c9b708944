package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"trainyard/internal/blob"
	"trainyard/internal/clock"
)

// RunSigned holds a store that signs requests to the contract of those. verifies says whether the server behind it
// checks signatures and checksums at all.
func RunSigned(t *testing.T, verifies bool, open func(t *testing.T) blob.Store) {
	t.Helper()

	checks := []check{{"signed requests", signed}}
	if verifies {
		checks = append(checks,
			check{"signed requests bind the content", signedContent}, check{"signed requests expire", signedExpiry})
	}

	run(t, open, checks)
}

// signer returns the store's signer.
func signer(t *testing.T, s blob.Store) blob.Signer {
	t.Helper()

	g, ok := s.(blob.Signer)
	if !ok {
		t.Fatalf("%T does not sign requests", s)
	}

	return g
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// send makes a signed request and returns the status and the body of the answer.
func send(ctx context.Context, method string, q blob.Request, content []byte) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, q.URL, bytes.NewReader(content))
	if err != nil {
		return 0, nil, fmt.Errorf("signed URL: %w", err)
	}

	for name, value := range q.Header {
		r.Header.Set(name, value)
	}

	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}

	defer func() { _ = res.Body.Close() }()

	body, err := io.ReadAll(res.Body)

	return res.StatusCode, body, err
}

func mustSend(t *testing.T, method string, q blob.Request, content []byte) (int, []byte) {
	t.Helper()

	status, body, err := send(t.Context(), method, q, content)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}

	return status, body
}

const ttl = 15 * time.Minute

func signed(t *testing.T, s blob.Store) {
	t.Helper()
	g := signer(t, s)

	for name, content := range map[string][]byte{"chunks/ab/cd": noise(100_000), "a b/ü+~": []byte("x"), "none": {}} {
		q, err := g.SignPut(t.Context(), name, int64(len(content)), digest(content), ttl)
		if err != nil {
			t.Fatal(err)
		}

		if status, body := mustSend(t, http.MethodPut, q, content); status != http.StatusOK {
			t.Fatalf("put %s: status %d: %s", name, status, body)
		}

		r, err := s.Get(t.Context(), name)
		if got := Read(t, r, err); got != string(content) {
			t.Errorf("%s: read %d bytes that are not those that were put", name, len(got))
		}

		q, err = g.SignGet(t.Context(), name, ttl)
		if err != nil {
			t.Fatal(err)
		}

		if status, body := mustSend(t, http.MethodGet, q, nil); status != http.StatusOK || !bytes.Equal(body, content) {
			t.Errorf("get %s: status %d, %d bytes, want %d", name, status, len(body), len(content))
		}
	}

	q, err := g.SignGet(t.Context(), "not/there", ttl)
	if err != nil {
		t.Fatal(err)
	}

	if status, _ := mustSend(t, http.MethodGet, q, nil); status != http.StatusNotFound {
		t.Errorf("get what is not there: status %d", status)
	}

	if _, err := g.SignPut(t.Context(), "x", 1, "not a digest", ttl); err == nil {
		t.Error("a digest that is none was signed")
	}

	if _, err := g.SignGet(t.Context(), "../x", ttl); err == nil {
		t.Error("a name that leads astray was signed")
	}
}

// signedContent shows that whoever has a signed request can put nothing but what it was signed for.
func signedContent(t *testing.T, s blob.Store) {
	t.Helper()
	g := signer(t, s)
	right := []byte("the right content")

	q, err := g.SignPut(t.Context(), "chunks/x", int64(len(right)), digest(right), ttl)
	if err != nil {
		t.Fatal(err)
	}

	other := blob.Request{URL: q.URL, Header: map[string]string{}}
	for name, value := range q.Header {
		if value == q.Header["X-Amz-Checksum-Sha256"] {
			continue
		}

		other.Header[name] = value
	}

	for what, tt := range map[string]struct {
		request blob.Request
		content []byte
	}{
		"other content":      {q, []byte("the wrong content")},
		"more content":       {q, append(bytes.Clone(right), '!')},
		"without the digest": {other, right},
	} {
		if status, _ := mustSend(t, http.MethodPut, tt.request, tt.content); status < 400 {
			t.Errorf("%s: status %d, want it refused", what, status)
		}
	}

	if names := Names(t, s, ""); len(names) > 0 {
		t.Errorf("stored: %v", names)
	}
}

func signedExpiry(t *testing.T, s blob.Store) {
	t.Helper()
	g := signer(t, s)
	put(t, s, "a", "x")

	q, err := g.SignGet(t.Context(), "a", time.Second)
	if err != nil {
		t.Fatal(err)
	}

	for {
		status, _ := mustSend(t, http.MethodGet, q, nil)
		if status == http.StatusForbidden || status == http.StatusBadRequest {
			return
		}

		if status != http.StatusOK || !clock.Sleep(t.Context(), 50*time.Millisecond) {
			t.Fatalf("status %d, want the request to expire", status)
		}
	}
}
