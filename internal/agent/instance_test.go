package agent_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/agent"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// handClock is the wall clock, moved by hand.
type handClock struct{ ahead atomic.Int64 }

func (c *handClock) Now() time.Time          { return time.Now().UTC().Add(time.Duration(c.ahead.Load())) }
func (c *handClock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// agentLog keeps what an agent logs.
type agentLog struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed at the next line
}

func (l *agentLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	close(l.changed)
	l.changed = make(chan struct{})

	return l.text.Write(p)
}

// await waits until the log has a text.
func (l *agentLog) await(t *testing.T, text string) {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	for {
		l.mu.Lock()
		all, changed := l.text.String(), l.changed
		l.mu.Unlock()

		if strings.Contains(all, text) {
			return
		}

		select {
		case <-changed:
		case <-limit.Done():
			t.Fatalf("waited in vain for %q in the log:\n%s", text, all)
		}
	}
}

// lacks checks that the log does not have a text.
func (l *agentLog) lacks(t *testing.T, text string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()

	if strings.Contains(l.text.String(), text) {
		t.Errorf("the log has %q:\n%s", text, l.text.String())
	}
}

// logged gives an agent a log that can be looked at.
func logged(cfg *agent.Config) *agentLog {
	l := &agentLog{changed: make(chan struct{})}
	cfg.Log = slog.New(slog.NewTextHandler(l, nil))

	return l
}

// runs is how an agent ends by itself.
func runs(t *testing.T, cfg agent.Config) error {
	t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	err = a.Run(ctx)
	if ctx.Err() != nil {
		t.Fatal("the agent does not end by itself")
	}

	return err
}

// running puts a rank into the runtime, as an earlier agent left it.
func (f *fakeRuntime) running(t *testing.T, run id.Run) {
	t.Helper()
	j, epoch, _ := run.Split()

	if err := f.Start(t.Context(), rundir.Spec{Run: run, Job: j, Epoch: epoch}); err != nil {
		t.Fatal(err)
	}
}

// untouched checks that no agent adopted, started or stopped anything.
func (f *fakeRuntime) untouched(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.adopted != 0 || len(f.stops) != 0 || len(f.renewed) != 0 {
		t.Errorf("adopted %d times, stops %v, leases %v", f.adopted, f.stops, f.renewed)
	}
}

func TestACopyEndsBeforeItTouchesAnything(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	rt.running(t, "j1.1")

	cfg := config(t, y, rt)
	cfg.StopRunsOnExit = true
	y.assign()
	y.change(func() {
		y.code = api.CodeAgentCopied
		y.refuse = func(path string) int {
			if strings.HasSuffix(path, "/reports") {
				return 409
			}

			return 0
		}
	})

	if err := runs(t, cfg); codeOf(err) != api.CodeAgentCopied {
		t.Errorf("the copy ended with %v", err)
	}

	rt.untouched(t)
}

func TestAnAgentThatIsReplacedEndsAndLeavesItsRuns(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.StopRunsOnExit = true
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() { ended <- a.Run(t.Context()) }()
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	y.change(func() { y.code, y.refuse = api.CodeAgentReplaced, func(string) int { return 409 } })

	if err := <-ended; codeOf(err) != api.CodeAgentReplaced {
		t.Errorf("the agent ended with %v", err)
	}

	rt.mu.Lock()
	defer rt.mu.Unlock()

	if len(rt.stops) != 0 {
		t.Errorf("it stopped %v", rt.stops)
	}
}

func TestAnAgentThatMustWaitAdoptsWhenItIsAdmitted(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	rt.running(t, "j1.1")
	cfg := config(t, y, rt)
	log := logged(&cfg)

	var refusals atomic.Int64
	y.change(func() {
		y.code = api.CodeAgentWaits
		y.refuse = func(path string) int {
			if strings.HasSuffix(path, "/reports") && refusals.Add(1) <= 2 {
				rt.untouched(t)
				return 409
			}

			return 0
		}
	})

	y.assign(assignment("j1.1"))
	launch(t, cfg)
	y.awaitState("j1.1", job.RunRunning)

	log.await(t, "refused by the test")

	if got := refusals.Load(); got < 3 {
		t.Errorf("admitted after %d reports, of which two were refused", got)
	}
}

// TestADirectoryThatWasCopiedWaitsForTheServer is about a copy that is started while the server is away: what it
// finds in its directory may belong to another agent.
func TestADirectoryThatWasCopiedWaitsForTheServer(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	stop := launch(t, cfg)
	y.await("the first report", func() bool { return len(y.reports) > 1 })
	stop()

	path := filepath.Join(cfg.Dir, "agent.json")
	memory := map[string]any{}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &memory)
	}

	if err != nil || memory["place"] == "" {
		t.Fatalf("the agent does not remember where it was admitted: %s %v", text, err)
	}

	memory["place"] = "another machine/801:2"
	text, err = json.Marshal(memory)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	copied := newFakeRuntime()
	copied.running(t, "j1.1")

	cfg = config(t, y, copied)
	cfg.Dir = filepath.Dir(path)
	log := logged(&cfg)
	y.stop()
	launch(t, cfg)

	log.await(t, "was copied or moved here")
	copied.mu.Lock()

	if copied.adopted != 0 {
		t.Error("it adopts what may belong to another agent")
	}

	copied.mu.Unlock()
	y.assign(assignment("j1.1"))
	y.start(y.addr)
	y.awaitState("j1.1", job.RunRunning)
}

func TestEveryRequestSaysWhichAgentSendsIt(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	launch(t, config(t, y, rt))
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	rt.print("j1.1", "hello\n")

	y.await("the line", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s != nil && len(s.data) > 0
	})

	y.mu.Lock()
	defer y.mu.Unlock()

	headers := map[string]bool{}
	for path, all := range y.agents {
		for header := range all {
			if agent, err := api.ParseAgent(header); err != nil || agent == nil || agent.Boot == "" || agent.Folder == "" {
				t.Errorf("requests below %s say %q", path, header)
			}

			headers[header] = true
		}
	}

	if len(y.agents) < 2 || len(headers) != 1 {
		t.Errorf("headers by path: %v", y.agents)
	}
}

// expiring is the configuration of an agent whose clock is the yard's, after it has joined and its certificate has
// expired.
func expiring(t *testing.T, y *fakeYard, rt *fakeRuntime) agent.Config {
	t.Helper()
	cfg := config(t, y, rt)
	cfg.Clock = y.clk
	stop := launch(t, cfg)
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	stop()
	y.clk.advance(48 * time.Hour)

	return cfg
}

func TestAnExpiredCertificateIsReplacedWithTheToken(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := expiring(t, y, rt)
	cfg.Name = "another" // the node keeps its own

	reports := 0
	y.change(func() { reports = len(y.reports) })
	launch(t, cfg)
	y.await("a report with the new certificate", func() bool { return len(y.reports) > reports && y.joins == 2 })

	rt.mu.Lock()
	defer rt.mu.Unlock()

	if len(rt.stops) != 0 || rt.starts[rankKey{"j1.1", 0}] != 1 {
		t.Errorf("stops %v, starts %v", rt.stops, rt.starts)
	}
}

func TestAnExpiredCertificateWithoutATokenIsExplainedAndRunsGoOn(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := expiring(t, y, rt)
	cfg.JoinToken = ""
	log := logged(&cfg)
	stop := launch(t, cfg)

	for _, text := range []string{"the certificate of node n1 was valid until", "trainyard tokens create --join",
		"trainyard agent join " + y.url(), "agent started"} {
		log.await(t, text)
	}

	stop()
	log.lacks(t, "is the server running")

	rt.mu.Lock()
	defer rt.mu.Unlock()

	if rt.adopted != 2 || len(rt.stops) != 0 {
		t.Errorf("adopted %d times, stops %v", rt.adopted, rt.stops)
	}
}

// TestATokenHelpsWhileTheMachinesClockIsBehind is about a machine whose clock says that its certificate is valid.
func TestATokenHelpsWhileTheMachinesClockIsBehind(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := expiring(t, y, rt)
	cfg.Clock = &handClock{}

	reports := 0
	y.change(func() { reports = len(y.reports) })
	launch(t, cfg)
	y.await("a report with the new certificate", func() bool { return len(y.reports) > reports && y.joins == 2 })
}

func TestAnUnusableTokenForAnExpiredCertificateIsRefused(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := expiring(t, y, rt)
	y.change(func() { y.token = "none" })

	if err := runs(t, cfg); codeOf(err) != "token_invalid" {
		t.Errorf("the agent ended with %v", err)
	}
}
