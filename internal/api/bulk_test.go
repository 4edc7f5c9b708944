package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"trainyard/internal/id"
)

// Chunks of checkpoints have connections of their own, so that heartbeats do not wait behind them.
func TestChunksDoNotShareAConnection(t *testing.T) {
	t.Parallel()
	const uploads = 3

	var together sync.WaitGroup
	together.Add(uploads)

	var mu sync.Mutex
	seen := map[string]int{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			together.Done()
			together.Wait() // all are under way
		}

		_, _ = io.Copy(io.Discard, r.Body)

		mu.Lock()
		defer mu.Unlock()
		seen[r.Proto+" "+r.RemoteAddr]++
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c := NewClient(server.URL, "", &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots})
	defer c.Close()

	var group sync.WaitGroup
	for range uploads {
		group.Go(func() {
			if err := c.PutChunk(t.Context(), "j1.1", "digest", make([]byte, 1<<20)); err != nil {
				t.Error(err)
			}
		})
	}

	group.Wait()

	if err := c.call(t.Context(), http.MethodGet, "/other", nil, nil, nil); err != nil {
		t.Error(err)
	}

	if len(seen) != uploads+1 {
		t.Errorf("connections: %v, want one for each upload and one for the rest", seen)
	}
}

// An upload to a machine that went silent ends.
func TestAnUploadThatStandsStillEnds(t *testing.T) {
	t.Parallel()

	near, far := net.Pipe() // nobody reads at the far end
	defer func() { _ = far.Close() }()

	transport := bulkTransport(nil)
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		return &stallConn{near, time.Millisecond}, nil
	}

	c := NewClient("http://silent", "", nil)
	c.bulk.Transport = transport

	if err := c.PutChunk(t.Context(), id.Run("j1.1"), "digest", make([]byte, 1<<20)); err == nil {
		t.Error("the upload succeeded")
	}
}
