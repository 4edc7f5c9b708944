package agent_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"trainyard/internal/agent"
	"trainyard/internal/api"
	"trainyard/internal/job"
)

// TestWhatProvesThatNothingWasGivenUp makes every failure happen on a real connection.
func TestWhatProvesThatNothingWasGivenUp(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	refusing := "https://" + closed.Addr().String()

	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}

	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = silent.Close() })
	cutting := listenAndCut(t)
	tests := []struct {
		name   string
		server string
		status int
		want   bool
	}{
		{"a refused connection", refusing, 0, true},
		{"silence", "https://" + silent.Addr().String(), 0, false},
		{"a connection that is cut", cutting, 0, false},
		{"an answer that it is not available now", y.url(), http.StatusServiceUnavailable, true},
		{"an answer that we ask too often", y.url(), http.StatusTooManyRequests, true},
		{"an answer that the node is not wanted", y.url(), http.StatusForbidden, false},
		{"an answer that the server is broken", y.url(), http.StatusInternalServerError, false},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			y.change(func() { y.refuse = func(string) int { return tt.status } })
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()

			client := api.NewClient(tt.server, "", &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
			defer client.Close()

			_, err := client.Report(ctx, api.Report{})
			if err == nil {
				t.Fatal("the report was taken")
			}

			if got := agent.KeepsContactLease(err); got != tt.want {
				t.Errorf("vouches = %v, want %v (%v)", got, tt.want, err)
			}
		})
	}
}

// listenAndCut takes connections and closes them at once.
func listenAndCut(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}

			_ = conn.Close()
		}
	})

	t.Cleanup(func() {
		_ = listener.Close()
		done.Wait()
	})

	return "https://" + listener.Addr().String()
}

func TestTheLeaseIsRenewedWhileTheServerIsDownEvenAfterARestart(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.lease = 77 * time.Second
	cfg := config(t, y, rt)
	stop := launch(t, cfg)
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)

	renewals := func() int {
		n := 0
		for _, d := range rt.renewed {
			if d == 77*time.Second {
				n++
			}
		}

		return n
	}

	rt.wait(y, "the lease of the reply", func() bool { return renewals() > 1 })
	y.stop()
	seen := 0
	rt.wait(y, "a count", func() bool {
		seen = renewals()
		return true
	})

	rt.wait(y, "renewals while the port is closed", func() bool { return renewals() >= seen+3 })
	stop()

	rt.wait(y, "a count", func() bool {
		seen = renewals()
		return true
	})

	launch(t, cfg)
	rt.wait(y, "renewals by an agent that never reached the server", func() bool { return renewals() >= seen+2 })
}

func TestTheLeaseIsNotRenewedByRefusals(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	y.await("a report", func() bool { return len(y.reports) > 0 })
	refusals := 0
	y.change(func() {
		y.refuse = func(path string) int {
			if path != "/agent/v1/reports" {
				return 0
			}

			y.change(func() { refusals++ })

			return http.StatusForbidden
		}
	})

	before := 0
	y.await("the first refusal", func() bool { return refusals >= 1 })

	rt.wait(y, "a count", func() bool {
		before = len(rt.renewed)
		return true
	})

	y.await("more refusals", func() bool { return refusals >= 4 })
	rt.mu.Lock()
	defer rt.mu.Unlock()

	if len(rt.renewed) != before {
		t.Errorf("%d renewals by refusals", len(rt.renewed)-before)
	}
}
