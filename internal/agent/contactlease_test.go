package agent_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/agent"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/contact"
	"trainyard/internal/fault"
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
		code   string
		want   contact.Failure
	}{
		{"a refused connection", refusing, 0, "", contact.Refused},
		{"silence", "https://" + silent.Addr().String(), 0, "", contact.Unknown},
		{"a connection that is cut", cutting, 0, "", contact.Unknown},
		{"an answer that it was heard", y.url(), http.StatusServiceUnavailable, "heard", contact.Heard},
		{"an answer that it cannot store", y.url(), http.StatusServiceUnavailable, "store_down", contact.Unknown},
		{"an answer that it is busy", y.url(), http.StatusServiceUnavailable, "busy", contact.Unknown},
		{"an answer that we ask too often", y.url(), http.StatusTooManyRequests, "", contact.Unknown},
		{"an answer that the node is not wanted", y.url(), http.StatusForbidden, "", contact.Unknown},
		{"an answer that the server is broken", y.url(), http.StatusInternalServerError, "", contact.Unknown},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			y.change(func() { y.code, y.refuse = tt.code, func(string) int { return tt.status } })
			patience := 300 * time.Millisecond
			if tt.want != contact.Unknown {
				patience = time.Minute // it must come, and may take long on a busy machine
			}

			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()

			client := api.NewClient(tt.server, "", &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
			defer client.Close()

			_, err := client.Report(ctx, api.Report{})
			if err == nil {
				t.Fatal("the report was taken")
			}

			if got := agent.FailureOf(err); got != tt.want {
				t.Errorf("failure = %v, want %v (%v)", got, tt.want, err)
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

// A fakeClock is the time since boot of the agent's machine.
type fakeClock struct{ since atomic.Int64 }

func (c *fakeClock) moment() (cloud.Moment, error) {
	return cloud.Moment{Boot: "boot", Since: time.Duration(c.since.Load())}, nil
}

func (c *fakeClock) pass(d time.Duration) { c.since.Add(int64(d)) }

// extensions counts the renewals without an answer; call it under the lock.
func (f *fakeRuntime) extensions() int {
	n := 0
	for _, r := range f.renewed {
		if !r.answered {
			n++
		}
	}

	return n
}

func TestALeaseCountsFromBeforeTheQuestionHoweverLateTheAnswer(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.lease = 70 * time.Second
	cfg := config(t, y, rt)
	clk := &fakeClock{}
	clk.pass(time.Hour)
	cfg.Moment = clk.moment

	// Every report is handled at once, and its answer takes six seconds.
	y.change(func() {
		y.meddle = func(when, path string) bool {
			if when == "after" && path == "/agent/v1/reports" {
				clk.pass(6 * time.Second)
			}

			return false
		}
	})
	launch(t, cfg)
	rt.wait(y, "two renewals", func() bool { return len(rt.renewed) >= 2 })
	rt.mu.Lock()
	defer rt.mu.Unlock()

	for i, r := range rt.renewed[:2] {
		sent := time.Hour + time.Duration(i)*6*time.Second
		want := contact.Lease{Boot: "boot", Until: sent + 70*time.Second, Valid: 70 * time.Second, Grace: 7 * time.Second}

		if r.lease != want || !r.answered {
			t.Errorf("renewal %d is %+v, want %+v by an answer", i, r, want)
		}
	}
}

// TestWhatExtendsALeaseWithoutAnAnswer lets reports fail in every way and looks whether leases are extended.
func TestWhatExtendsALeaseWithoutAnAnswer(t *testing.T) {
	t.Parallel()

	unavailable := func(code string) func(*fakeYard, func()) {
		return func(y *fakeYard, failed func()) {
			y.change(func() {
				y.code, y.refuse = code, func(path string) int {
					if path != "/agent/v1/reports" {
						return 0
					}

					failed()

					return http.StatusServiceUnavailable
				}
			})
		}
	}
	refused := func(y *fakeYard, _ func()) { y.stop() }

	for _, tt := range []struct {
		name    string
		standby bool
		fail    func(y *fakeYard, failed func())
		want    bool
	}{
		{"refused, no standby", false, refused, true},
		{"refused, but another server may have taken over", true, refused, false},
		{"heard, which the server counts", true, unavailable("heard"), true},
		{"store stuck, which the server does not count", false, unavailable("store_down"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			y, rt := newYard(t), newFakeRuntime()
			y.standby = tt.standby
			cfg := config(t, y, rt)
			registry := prometheus.NewRegistry()
			cfg.Metrics = registry
			launch(t, cfg)
			rt.wait(y, "a grant", func() bool { return len(rt.renewed) > 0 })
			tt.fail(y, func() {})
			awaitFailedReports(t, registry, 5)
			rt.mu.Lock()
			defer rt.mu.Unlock()

			if got := rt.extensions() > 0; got != tt.want {
				t.Errorf("extended = %v, want %v", got, tt.want)
			}
		})
	}
}

// awaitFailedReports waits until an agent has counted so many reports that failed. What follows from
// one is done before the next fails.
func awaitFailedReports(t *testing.T, registry *prometheus.Registry, want float64) {
	t.Helper()

	for clock.Sleep(t.Context(), 5*time.Millisecond) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range families {
			if f.GetName() == "trainyard_agent_report_failures_total" && f.GetMetric()[0].GetCounter().GetValue() >= want {
				return
			}
		}
	}

	t.Fatal("the reports do not fail")
}

func TestTheLeaseIsExtendedWhileTheServerIsDownEvenAfterARestart(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.lease = 77 * time.Second
	cfg := config(t, y, rt)
	stop := launch(t, cfg)
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	y.stop()
	rt.wait(y, "extensions while the port is closed", func() bool { return rt.extensions() >= 3 })
	stop()

	seen := 0
	rt.wait(y, "a count", func() bool {
		seen = rt.extensions()
		return true
	})

	launch(t, cfg)
	rt.wait(y, "extensions by an agent that never reached the server", func() bool { return rt.extensions() >= seen+2 })
	rt.mu.Lock()
	defer rt.mu.Unlock()

	if last := rt.renewed[len(rt.renewed)-1]; last.lease.Valid != 77*time.Second {
		t.Errorf("the lease is %+v, want the one that was granted", last)
	}
}

func TestNothingIsStartedBeforeTheFirstGrant(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	asked := 0
	y.refuse = func(path string) int {
		if path != "/agent/v1/reports" {
			return 0
		}

		y.change(func() { asked++ })

		return http.StatusServiceUnavailable
	}
	y.assign(assignment("j1.1"))
	launch(t, config(t, y, rt))
	y.await("assignments, and reports that fail", func() bool { return y.streams > 0 && asked >= 5 })
	rt.mu.Lock()
	started := len(rt.starts)
	rt.mu.Unlock()

	if started > 0 {
		t.Error("a run was started without a contact lease")
	}

	y.change(func() { y.refuse = nil })
	y.awaitState("j1.1", job.RunRunning)
}

// The stream of a server that was restarted may bring a run before the first report is answered.
func TestWhatARestartedServerAssignsIsStartedAfterItsFirstGrant(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	y.awaitAnswers(1)

	asked := 0
	y.change(func() {
		y.refuse = func(path string) int {
			if path != "/agent/v1/reports" {
				return 0
			}

			y.change(func() { asked++ })

			return http.StatusServiceUnavailable
		}
		y.runs = []api.Assignment{assignment("j1.1")}
		y.streams = 0
	})
	y.restart()
	y.await("assignments, and reports that fail", func() bool { return y.streams > 0 && asked >= 5 })
	y.change(func() { y.refuse = nil })
	y.awaitState("j1.1", job.RunRunning)
}

// A node that was declared lost gets a lease again. A run that waits there is not assigned any
// more, and may run elsewhere, but the agent does not know yet: its stream hangs.
func TestStaleAssignmentsAreNotStartedUnderANewLease(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	rt.fail = fault.New(fault.Unavailable, "lease_over", "the lease has expired")
	launch(t, config(t, y, rt))
	y.assign(assignment("j1.1"))
	rt.wait(y, "a try to start it", func() bool { return rt.tries > 0 })
	y.change(func() { y.silent = true })
	y.assign()                          // the run was given up
	y.awaitAnswers(3)                   // they are answered with a lease
	rt.change(func() { rt.fail = nil }) // wakes the agent, which could start it now
	y.awaitAnswers(3)
	y.change(func() { y.silent = false })
	y.assign(assignment("j2.1"))
	y.awaitState("j2.1", job.RunRunning)
	rt.mu.Lock()
	defer rt.mu.Unlock()

	if rt.starts[rankKey{"j1.1", 0}] > 0 {
		t.Error("a run that is not assigned any more was started")
	}
}

// awaitAnswers waits until so many more reports have been answered.
func (y *fakeYard) awaitAnswers(more int) {
	y.t.Helper()
	y.mu.Lock()
	want := len(y.reports) + more + 1 // an agent sends the next one when it has the answer
	y.mu.Unlock()
	y.await("more reports", func() bool { return len(y.reports) >= want })
}

func TestAnAgentFindsTheServerThatLeads(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name string
		fail func(*fakeYard)
	}{
		{"the first refuses connections", (*fakeYard).stop},
		{"the first does not lead any more", func(y *fakeYard) {
			y.change(func() { y.refuse = func(string) int { return http.StatusServiceUnavailable } })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			first, rt := newYard(t), newFakeRuntime()
			second := newServer(t, first.ca)
			first.standby, second.standby = true, true
			first.servers = []string{first.url(), second.url()}
			second.servers = first.servers
			cfg := config(t, first, rt)
			stop := launch(t, cfg)
			first.await("a report", func() bool { return len(first.reports) > 1 })
			tt.fail(first)
			second.assign(assignment("j1.1"))
			second.awaitState("j1.1", job.RunRunning)

			// Another agent finds it, too: the addresses are on disk.
			stop()

			seen := 0
			second.await("a count", func() bool {
				seen = len(second.reports)
				return true
			})
			launch(t, cfg)
			second.await("a report after the restart", func() bool { return len(second.reports) > seen })
		})
	}
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
