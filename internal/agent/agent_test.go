package agent_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/agent"
	"trainyard/internal/agent/inventory"
	"trainyard/internal/agent/runtime"
	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// config is that of an agent of the yard, with a runtime that is shared by all
// agents made from it.
func config(t *testing.T, y *fakeYard, rt *fakeRuntime) agent.Config {
	t.Helper()
	return agent.Config{
		Dir: t.TempDir(), DataRoots: []string{os.TempDir()}, DataHosts: []string{"127.0.0.1"},
		Server: y.url(), JoinToken: y.token, Name: "n1",
		NewRuntime: func(p runtime.Preparation) (agent.Runtime, error) {
			rt.mu.Lock()
			defer rt.mu.Unlock()

			rt.files = p.Files

			return rt, nil
		},
		Inventory: func(context.Context) (inventory.Found, error) {
			return inventory.Found{Inventory: fleet.Inventory{OS: "test", CPUs: 4000}}, nil
		},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Clock: clock.Wall{},
	}
}

// launch runs an agent until stop is called or the test ends.
func launch(t *testing.T, cfg agent.Config) (stop func()) {
	t.Helper()
	_, stop = launchAgent(t, cfg)

	return stop
}

// launchAgent is launch for tests that look into the agent.
func launchAgent(t *testing.T, cfg agent.Config) (a *agent.Agent, stop func()) {
	t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}

		stopped = true
		cancel()

		if err := <-done; err != nil {
			t.Errorf("agent: %v", err)
		}
	}

	t.Cleanup(stop)

	return a, stop
}

func assignment(run id.Run) api.Assignment {
	j, epoch, _ := run.Split()
	return api.Assignment{Run: run, Job: j, Epoch: epoch, Launch: api.Launch{Command: "true", Owner: "ana"}}
}

func codeOf(err error) string {
	var e *fault.Error
	if errors.As(err, &e) {
		return e.Code
	}

	return ""
}

func TestARunFromAssignmentToForgetting(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	registry := prometheus.NewRegistry()
	cfg.Metrics = registry
	launch(t, cfg)
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	rt.print("j1.1", "hello\n")

	y.await("the line", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s != nil && string(s.data) == "hello\n"
	})

	rt.print("j1.1", strings.Repeat("x", 3<<20))
	rt.end("j1.1", 7)

	if got := y.awaitState("j1.1", job.RunEnded); got.ExitCode != 7 {
		t.Errorf("exit code %d, want 7", got.ExitCode)
	}

	y.await("the whole output", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s != nil && s.final && len(s.data) == 6+3<<20
	})

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}

			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}

	if values["trainyard_agent_ranks ended"] != 1 || values["trainyard_agent_contact_age_seconds"] < 0 {
		t.Errorf("metrics: %v", values)
	}

	rt.mu.Lock()
	early := len(rt.forgot)
	rt.mu.Unlock()

	if early != 0 {
		t.Error("forgotten while it was still assigned")
	}

	y.assign()
	rt.wait(y, "the record to go", func() bool { return cmp.Equal(rt.forgot, []string{"j1.1"}) })

	// A yard that lost its memory asks for it again.
	y.assign(assignment("j1.1"))

	y.await("the refusal", func() bool {
		got, _ := y.last("j1.1")
		return got.State == job.RunEnded && got.Cause == job.CauseLaunchFailed &&
			strings.Contains(got.Reason, "already ended on this node")
	})

	rt.mu.Lock()
	defer rt.mu.Unlock()

	if rt.starts[rankKey{"j1.1", 0}] != 1 {
		t.Errorf("%d starts, want 1", rt.starts[rankKey{"j1.1", 0}])
	}
}

func TestOlderEpochIsRefusedEvenAfterARestart(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	stop := launch(t, cfg)
	y.assign(assignment("j1.2"))
	y.awaitState("j1.2", job.RunRunning)
	rt.end("j1.2", 0)
	y.assign()
	rt.wait(y, "the record to go", func() bool { return len(rt.forgot) == 1 })
	stop()
	y.assign(assignment("j1.1"))
	launch(t, cfg)

	got := y.awaitState("j1.1", job.RunEnded)
	if got.Cause != job.CauseLaunchFailed || !strings.Contains(got.Reason, "older than run j1.2") {
		t.Errorf("an older run: %+v", got)
	}

	rt.mu.Lock()

	if rt.starts[rankKey{"j1.1", 0}] != 0 {
		t.Error("it was started")
	}

	rt.mu.Unlock()
	y.assign(assignment("j1.3"))
	y.awaitState("j1.3", job.RunRunning)
}

func TestStops(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	y.assign(assignment("j1.1"), assignment("j2.1"), assignment("j3.1"))

	for _, run := range []id.Run{"j1.1", "j2.1", "j3.1"} {
		y.awaitState(run, job.RunRunning)
	}

	term := assignment("j1.1")
	kill := assignment("j2.1")
	never := assignment("j4.1")
	term.Stop = job.StopTerm
	kill.Stop = job.StopKill
	never.Stop = job.StopTerm
	y.assign(term, kill, never) // and j3.1 is not assigned any more

	for _, run := range []id.Run{"j1.1", "j2.1"} {
		if got := y.awaitState(run, job.RunEnded); !got.Signalled {
			t.Errorf("%s: %+v", run, got)
		}
	}

	got := y.awaitState("j4.1", job.RunEnded)
	if !got.Signalled || got.Cause != job.CauseCancelled || got.Reason != "stopped on request before it was started" {
		t.Errorf("never started: %+v", got)
	}

	rt.wait(y, "j3.1 to go", func() bool { return cmp.Equal(rt.forgot, []string{"j3.1"}) })
	rt.mu.Lock()
	defer rt.mu.Unlock()

	want := map[string]bool{"j1.1 term": true, "j2.1 kill": true, "j3.1 kill": true}
	for _, s := range rt.stops {
		delete(want, s)
	}

	if len(want) != 0 || len(rt.stops) != 3 || rt.starts[rankKey{"j4.1", 0}] != 0 {
		t.Errorf("stops %v, starts %v", rt.stops, rt.starts)
	}
}

func TestAProgramIsAskedToSaveEachTimeTheServerAsks(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	first, other := assignment("j1.1"), assignment("j2.1")
	y.assign(first, other)
	y.awaitState("j1.1", job.RunRunning)
	y.awaitState("j2.1", job.RunRunning)

	first.Save = 1
	y.assign(first, other)
	rt.wait(y, "the first request", func() bool { return cmp.Equal(rt.saves, []string{"j1.1 1"}) })

	first.Save = 3 // one was lost
	y.assign(first, other)
	rt.wait(y, "the next request", func() bool { return cmp.Equal(rt.saves, []string{"j1.1 1", "j1.1 3"}) })

	first.Save, first.Stop = 4, job.StopTerm
	y.assign(first, other)
	y.awaitState("j1.1", job.RunEnded)
	rt.mu.Lock()
	defer rt.mu.Unlock()

	if len(rt.saves) != 2 {
		t.Errorf("requests %v: a run that is stopped saves because of that", rt.saves)
	}
}

func TestAProgramIsSuspendedAndContinuesWhenTheServerSaysSo(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	first := assignment("j1.1")
	y.assign(first)
	y.awaitState("j1.1", job.RunRunning)

	for number := 1; number < 4; number++ {
		first.Suspend.Number = number
		y.assign(first)
		y.await("the suspension of j1.1", func() bool {
			r, _ := y.last("j1.1")
			return r.State == job.RunRunning && r.Suspension == job.Suspension{Number: number, On: number%2 == 1}
		})
	}
}

func TestStaleGenerationsAreIgnored(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)

	// A stream that is opened anew first brings what is old.
	y.change(func() {
		y.gen--
		y.runs = nil
	})

	y.mu.Lock()
	streams := y.streams
	y.mu.Unlock()
	y.await("another stream, since the generations differ", func() bool { return y.streams > streams })
	n := 0
	y.await("some reports", func() bool {
		n++
		return n > 5
	})

	rt.mu.Lock()

	if len(rt.stops) != 0 {
		t.Errorf("stopped by stale assignments: %v", rt.stops)
	}

	rt.mu.Unlock()

	// The same from a yard that started anew is no longer stale.
	y.restart()
	rt.wait(y, "the run to be stopped", func() bool { return cmp.Equal(rt.stops, []string{"j1.1 kill"}) })
}

func TestAStreamThatHangsIsNoticed(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	y.await("the first stream", func() bool { return y.streams == 1 && len(y.reports) > 0 })
	y.change(func() { y.silent = true })
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	y.mu.Lock()
	defer y.mu.Unlock()

	if y.streams < 2 {
		t.Errorf("%d streams, want another", y.streams)
	}
}

func TestNothingIsLostOrDoubledOnABadLine(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	const runs = 6

	var all []api.Assignment
	for n := range runs {
		all = append(all, assignment(id.NewRun(id.NewJob(uint64(n+1)), 1)))
	}

	y.assign(all...)

	for _, as := range all {
		y.awaitState(as.Run, job.RunRunning)
	}

	// From now on two of three requests are cut, before or after they were carried out.
	count := 0
	y.change(func() {
		y.meddle = func(string, string) bool {
			y.mu.Lock()
			defer y.mu.Unlock()

			count++

			return count%3 != 0
		}
	})

	want := map[id.Run]string{}
	for line := range 60 {
		for _, as := range all {
			text := fmt.Sprintf("%s line %d %s\n", as.Run, line, strings.Repeat("é", line*50))
			want[as.Run] += text
			rt.print(as.Run, text)
		}

		if line == 20 || line == 40 {
			y.stop()
			y.restart()
		}
	}

	for n, as := range all {
		rt.end(as.Run, n)
	}

	y.await("some cuts", func() bool { return count > 20 })
	y.change(func() { y.meddle = nil })

	for n, as := range all {
		if got := y.awaitState(as.Run, job.RunEnded); got.ExitCode != n {
			t.Errorf("%s: exit code %d, want %d", as.Run, got.ExitCode, n)
		}

		y.awaitOutput(as.Run)

		y.mu.Lock()

		if got := string(y.logs[rankKey{as.Run, 0}].data); got != want[as.Run] {
			t.Errorf("%s: %d bytes arrived, %d were printed", as.Run, len(got), len(want[as.Run]))
		}

		y.mu.Unlock()
	}

	y.mu.Lock()
	defer y.mu.Unlock()

	last := map[string]uint64{}
	for _, r := range y.reports {
		if r.Seq <= last[r.Boot] {
			t.Errorf("report %d after %d", r.Seq, last[r.Boot])
		}

		last[r.Boot] = r.Seq
	}

	if len(last) != 1 {
		t.Errorf("%d boots, want 1", len(last))
	}
}

func TestTheEndOfOutputIsNotLostWithAnAnswer(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)

	// The output is taken and the answer lost; then the run ends, and only after
	// that the agent reaches the server again.
	y.change(func() {
		y.meddle = func(when, path string) bool {
			if !strings.HasPrefix(path, "/agent/v1/logs/") {
				return false
			}

			y.mu.Lock()
			defer y.mu.Unlock()

			r, _ := y.last("j1.1")
			taken := y.logs[rankKey{"j1.1", 0}] != nil

			return r.State != job.RunEnded && (when == "after" || taken)
		}
	})

	rt.print("j1.1", "all of it")
	y.await("the output to be taken", func() bool { return y.logs[rankKey{"j1.1", 0}] != nil })
	rt.end("j1.1", 0)
	y.awaitState("j1.1", job.RunEnded)

	y.await("the end of the output", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s.final && string(s.data) == "all of it"
	})
}

func TestARestartedAgentAdopts(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	stop := launch(t, cfg)
	y.assign(assignment("j1.1"), assignment("j2.1"))
	y.awaitState("j1.1", job.RunRunning)
	y.awaitState("j2.1", job.RunRunning)
	rt.print("j1.1", "before ")

	y.await("the output", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s != nil && len(s.data) > 0
	})

	stop()
	rt.mu.Lock()

	if len(rt.stops) != 0 {
		t.Errorf("the agent's end stopped %v", rt.stops)
	}

	rt.mu.Unlock()
	rt.print("j1.1", "between")
	rt.end("j1.1", 3)
	launch(t, cfg)

	if got := y.awaitState("j1.1", job.RunEnded); got.ExitCode != 3 {
		t.Errorf("exit code %d, want 3", got.ExitCode)
	}

	y.await("the rest of the output", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s != nil && s.final && string(s.data) == "before between"
	})

	rt.print("j2.1", "still here")

	y.await("output of the other", func() bool {
		s := y.logs[rankKey{"j2.1", 0}]
		return s != nil && string(s.data) == "still here"
	})

	rt.mu.Lock()
	defer rt.mu.Unlock()

	if rt.adopted != 2 || rt.starts[rankKey{"j2.1", 0}] != 1 {
		t.Errorf("adopted %d times, %d starts", rt.adopted, rt.starts[rankKey{"j2.1", 0}])
	}

	y.mu.Lock()
	defer y.mu.Unlock()

	if y.joins != 1 {
		t.Errorf("%d joins, want 1", y.joins)
	}

	if r := y.reports[len(y.reports)-1]; r.Boot == y.reports[0].Boot {
		t.Error("both agents have the same boot")
	}
}

func TestStopRunsOnExit(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.StopRunsOnExit = true
	stop := launch(t, cfg)
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	rt.print("j1.1", "last words")
	stop()
	rt.mu.Lock()

	if !cmp.Equal(rt.stops, []string{"j1.1 term"}) {
		t.Errorf("stops %v", rt.stops)
	}

	rt.mu.Unlock()
	y.mu.Lock()
	defer y.mu.Unlock()

	if s := y.logs[rankKey{"j1.1", 0}]; s == nil || !s.final || string(s.data) != "last words" {
		t.Errorf("output was not delivered: %+v", s)
	}

	if r, _ := y.last("j1.1"); r.State != job.RunEnded {
		t.Errorf("the end was not reported: %+v", r)
	}
}

func TestJoinRefusesAnotherYard(t *testing.T) {
	t.Parallel()
	y, other := newYard(t), newYard(t)
	cfg := config(t, y, newFakeRuntime())
	run := func(cfg agent.Config) error {
		a, err := agent.New(cfg)
		if err != nil {
			return err
		}

		limited, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()

		return a.Run(limited)
	}

	wrong := cfg
	wrong.JoinToken = other.token
	if err := run(wrong); codeOf(err) != "ca_mismatch" {
		t.Errorf("a token of another yard: %v", err)
	}

	none := cfg
	none.JoinToken = ""
	if err := run(none); codeOf(err) != "join_token_missing" {
		t.Errorf("no token: %v", err)
	}

	access, err := auth.Mint(tenant.AccessToken, rand.Reader, "")
	if err != nil {
		t.Fatal(err)
	}

	person := cfg
	person.JoinToken = access.Text
	if err := run(person); codeOf(err) != "token_kind_wrong" {
		t.Errorf("a person's token: %v", err)
	}

	unknown, err := auth.Mint(tenant.JoinToken, rand.Reader, y.ca.Hash())
	if err != nil {
		t.Fatal(err)
	}

	stale := cfg
	stale.JoinToken = unknown.Text
	if err := run(stale); codeOf(err) != "token_invalid" {
		t.Errorf("an unknown token: %v", err)
	}

	y.mu.Lock()

	if y.joins != 0 || len(y.reports) != 0 {
		t.Errorf("%d joins, %d reports", y.joins, len(y.reports))
	}

	y.mu.Unlock()
	stop := launch(t, cfg)
	y.await("a report", func() bool { return len(y.reports) > 0 })
	stop()

	if err := run(wrong); codeOf(err) != "joined_elsewhere" {
		t.Errorf("joined and a token of another yard: %v", err)
	}

	none.Server = "" // both are remembered
	launch(t, none)
	y.mu.Lock()
	seen := len(y.reports)
	y.mu.Unlock()
	y.await("a report without token and address", func() bool { return len(y.reports) > seen })
}

// ahead is a clock that is this much ahead.
type ahead time.Duration

func (a ahead) Now() time.Time { return time.Now().Add(time.Duration(a)) }

func TestTheCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.ttl = 10 * time.Minute
	cfg := config(t, y, rt)
	cfg.Clock = ahead(7 * time.Minute) // by which two thirds of its life are over
	launch(t, cfg)
	y.await("the renewal and a stream after it", func() bool { return y.renewals == 1 && y.streams >= 1 })
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
}

func TestARankThatCannotBeBegunIsGivenBack(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	rt.fail = errors.New("no space left on device")
	cfg := config(t, y, rt)
	stop := launch(t, cfg)
	y.assign(assignment("j1.1"))

	got := y.awaitState("j1.1", job.RunEnded)
	if got.Cause != job.CauseLaunchFailed || got.Reason != "no space left on device" {
		t.Errorf("got %+v", got)
	}

	stop()
	rt.change(func() { rt.fail = nil })
	y.mu.Lock()
	seen := len(y.reports)
	y.mu.Unlock()
	launch(t, cfg)
	y.await("two reports of the next agent", func() bool { return len(y.reports) >= seen+2 })
	rt.mu.Lock()
	defer rt.mu.Unlock()

	if rt.starts[rankKey{"j1.1", 0}] != 0 {
		t.Error("a rank that was reported as ended was started")
	}
}

func TestForeignProcessesOnGPUsAreReported(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.Inventory = func(context.Context) (inventory.Found, error) {
		gpus := []fleet.GPU{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b"}, {Index: 2, UUID: "GPU-c"}}
		return inventory.Found{Inventory: fleet.Inventory{GPUs: gpus}, Busy: []int{0, 2}}, nil
	}

	launch(t, cfg)
	as := assignment("j1.1")
	as.Launch.GPUs = []int{2, 1}
	y.assign(as)
	y.awaitState("j1.1", job.RunRunning)
	y.await("GPU 0 alone to be foreign", func() bool { return cmp.Equal(y.reports[len(y.reports)-1].Foreign, []int{0}) })
	rt.mu.Lock()
	defer rt.mu.Unlock()

	if got := rt.ranks[rankKey{"j1.1", 0}].spec.Devices; !cmp.Equal(got, []string{"GPU-c", "GPU-b"}) {
		t.Errorf("devices %v", got)
	}
}
