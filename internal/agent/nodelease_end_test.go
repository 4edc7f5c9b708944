package agent_test

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent"
	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/job"
)

// start runs an agent that is to end by itself, and returns how to wait for that.
func start(t *testing.T, cfg agent.Config) (ended func() error) {
	t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var result error
	waited := false
	wait := func() error {
		if !waited {
			result, waited = <-done, true
		}

		return result
	}

	t.Cleanup(func() {
		cancel()
		_ = wait()
	}) // its error is the test's, which has looked

	return wait
}

// ending is a command that ends a machine, and how to read what it did. Each run
// of it writes a line into a pipe.
func ending(t *testing.T) (command string, lines *bufio.Reader) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ended")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}

	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // both ends, so that opening does not wait
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = pipe.Close() })

	if err := pipe.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}

	return "echo over > " + path, bufio.NewReader(pipe)
}

func awaitLine(t *testing.T, lines *bufio.Reader) {
	t.Helper()

	if line, err := lines.ReadString('\n'); line != "over\n" || err != nil {
		t.Fatalf("the machine was not ended: %q, %v", line, err)
	}
}

// aheadClock is the machine's clock, ahead by what the test says.
type aheadClock struct{ ahead atomic.Int64 }

func (c *aheadClock) Now() time.Time {
	return clock.Wall{}.Now().Add(time.Duration(c.ahead.Load()))
}

func TestAProvisionedMachineThatHearsNothingStopsItsRunsAndEnds(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.left = new(int64(3600))
	cfg := config(t, y, rt)
	command, lines := ending(t)
	clk := &aheadClock{}
	cfg.OnLeaseEnd, cfg.Clock = command, clk
	launch(t, cfg)
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	y.change(func() { y.left = new(int64(1)) })
	seen := 0
	y.await("a count", func() bool {
		seen = len(y.reports)
		return true
	})

	y.await("an answer with a second left", func() bool { return len(y.reports) > seen+1 })
	y.stop()
	clk.ahead.Store(int64(time.Minute)) // it has been silent for so long that nobody waits for it
	rt.wait(y, "the run to be stopped", func() bool { return len(rt.stops) > 0 })
	awaitLine(t, lines)

	if rt.stops[0] != "j1.1 term" {
		t.Errorf("the run got %v, want its grace first", rt.stops)
	}
}

func TestAProvisionedMachineWhoseAgentStartsAnewStillEnds(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.left = new(int64(2))
	cfg := config(t, y, rt)
	cfg.OnLeaseEnd = agent.ExitOnLeaseEnd
	stop := launch(t, cfg)
	y.await("a report", func() bool { return len(y.reports) > 0 })
	stop()
	y.stop() // the second agent never reaches it

	if err := start(t, cfg)(); err != nil {
		t.Errorf("agent: %v", err)
	}
}

func TestAJoinThatIsRefusedBecauseTheLeaseIsOverEndsTheMachine(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.code, y.refuse = "lease_over", func(string) int { return http.StatusForbidden }
	cfg := config(t, y, rt)
	cfg.OnLeaseEnd = agent.ExitOnLeaseEnd
	if err := start(t, cfg)(); err != nil {
		t.Errorf("agent: %v, want an end without an error", err)
	}

	command, lines := ending(t)
	cfg.OnLeaseEnd = command
	launch(t, cfg)
	awaitLine(t, lines)
}

func TestAJoinThatFailsAfterTheEndOfTheLeaseEndsTheMachine(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.OnLeaseEnd = agent.ExitOnLeaseEnd
	now, err := cloud.MomentOf()
	if err != nil {
		t.Fatal(err)
	}

	y.stop()

	file := filepath.Join(cfg.Dir, cloud.DeadlineFile) // as the boot script left it
	if err := os.WriteFile(file, []byte(now.In(time.Hour).String()), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := start(t, cfg)(); err == nil {
		t.Error("the machine ends while its lease holds, because the yard is not there")
	}

	if err := os.WriteFile(file, []byte(now.In(0).String()), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := start(t, cfg)(); err != nil {
		t.Errorf("agent: %v, want an end without an error", err)
	}
}

func TestAProvisionedMachineThatIsNotWantedAnyMoreEnds(t *testing.T) {
	t.Parallel()

	for _, code := range []string{"lease_over", "node_removed"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			y, rt := newYard(t), newFakeRuntime()
			y.left = new(int64(86400))
			cfg := config(t, y, rt)
			cfg.OnLeaseEnd = agent.ExitOnLeaseEnd
			ended := start(t, cfg)
			y.await("a report", func() bool { return len(y.reports) > 0 })
			y.change(func() { y.code, y.refuse = code, func(string) int { return http.StatusForbidden } })

			if err := ended(); err != nil {
				t.Errorf("agent: %v", err)
			}
		})
	}
}

func TestANodeThatWasNotProvisionedStaysWhenItIsRemoved(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.OnLeaseEnd = agent.ExitOnLeaseEnd
	stop := launch(t, cfg)
	y.await("a report", func() bool { return len(y.reports) > 0 })
	refusals := 0
	y.change(func() {
		y.code, y.refuse = "node_removed", func(string) int {
			y.change(func() { refusals++ })
			return http.StatusForbidden
		}
	})

	y.await("refusals", func() bool { return refusals > 5 }) // it still asks
	stop()
}

func TestAMachineThatJoinsWithoutALeaseForgetsTheOldOne(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.OnLeaseEnd = agent.ExitOnLeaseEnd
	file := filepath.Join(cfg.Dir, cloud.DeadlineFile)
	if err := os.WriteFile(file, []byte("another-boot 1 1 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	launch(t, cfg)
	y.await("reports", func() bool { return len(y.reports) > 2 })

	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file of the lease: %v, want none", err)
	}
}

func TestDeclaredMachinesSayWhatWasDeclared(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	cfg := config(t, y, rt)
	cfg.Inventory = nil
	cfg.CPUs = 7000
	cfg.Memory = 12 << 30
	cfg.FakeGPUs = agent.NoGPUs
	launch(t, cfg)
	y.await("the inventory", func() bool { return len(y.reports) > 0 && y.reports[0].Inventory != nil })
	y.mu.Lock()
	defer y.mu.Unlock()

	if inv := y.reports[0].Inventory; inv.CPUs != 7000 || inv.Memory != 12<<30 || len(inv.GPUs) != 0 {
		t.Errorf("the machine has %s, %s and %d GPUs", inv.CPUs, inv.Memory, len(inv.GPUs))
	}
}
