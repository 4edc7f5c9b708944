package auth_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// fakeClock is a clock that tests turn by hand.
type fakeClock struct{ nanos atomic.Int64 }

func newClock(now time.Time) *fakeClock {
	c := &fakeClock{}
	c.nanos.Store(now.UnixNano())
	return c
}

func (c *fakeClock) Now() time.Time      { return time.Unix(0, c.nanos.Load()).UTC() }
func (c *fakeClock) add(d time.Duration) { c.nanos.Add(int64(d)) }

func openCA(tb testing.TB, now time.Time) *auth.CA {
	tb.Helper()
	ca, err := auth.OpenCA(tb.TempDir(), now)
	if err != nil {
		tb.Fatal(err)
	}

	return ca
}

// joined returns the identity of a node that this CA signed.
func joined(tb testing.TB, ca *auth.CA, node id.Node, now time.Time) *auth.NodeIdentity {
	tb.Helper()
	n, err := auth.NewNodeIdentity(ca.PEM())
	if err != nil {
		tb.Fatal(err)
	}

	install(tb, ca, n, node, now)

	return n
}

func install(tb testing.TB, ca *auth.CA, n *auth.NodeIdentity, node id.Node, now time.Time) {
	tb.Helper()
	csr, err := n.CSR("hint")
	if err != nil {
		tb.Fatal(err)
	}

	cert, _, err := ca.SignNode(csr, node, 30*24*time.Hour, now)
	if err != nil {
		tb.Fatal(err)
	}

	if err := n.Install(cert); err != nil {
		tb.Fatal(err)
	}
}

// serve answers over TLS with the name of the node that calls, or the code of
// the error, until the test ends. It returns the address.
func serve(t *testing.T, ca *auth.CA, cfg *tls.Config) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	srv := &http.Server{
		TLSConfig: cfg,
		ErrorLog:  log.New(io.Discard, "", 0), // refused handshakes are what the tests are about
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			node, err := ca.NodeOf(r.TLS, cfg.Time())
			if err != nil {
				http.Error(w, codeOf(err), http.StatusUnauthorized)
				return
			}

			_, _ = w.Write([]byte(r.Proto + " " + string(node)))
		}),
	}

	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(ln, "", "") }()

	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}

		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})

	return ln.Addr().String()
}

func serverTLS(t *testing.T, ca *auth.CA, clk *fakeClock, hosts ...string) *tls.Config {
	t.Helper()
	identity, err := ca.NewServerIdentity(hosts, clk)
	if err != nil {
		t.Fatal(err)
	}

	return ca.ServerTLS(identity)
}

func codeOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}

	return ""
}

// wantFault checks kind and code, and that people are told what to do.
func wantFault(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) {
		t.Fatalf("error = %v, want a fault with code %s", err, code)
	}

	if f.Kind != kind || f.Code != code {
		t.Errorf("error = %s %s (%v), want %s %s", f.Kind, f.Code, err, kind, code)
	}

	if f.Remedy == "" {
		t.Errorf("error %s has no remedy", f.Code)
	}

	if strings.Contains(err.Error(), "%!") {
		t.Errorf("error is badly formatted: %v", err)
	}
}
