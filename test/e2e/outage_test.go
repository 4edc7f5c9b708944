package e2e_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// counting is a job file that prints 100 numbered lines in some seconds and
// then makes a file.
func counting(done string) string {
	return script("for n in $(seq 0 99); do echo line $n; sleep 0.03; done", "touch "+done)
}

// checkCounted checks that a job ended well in one run with each line once.
func (y *yard) checkCounted(t *testing.T, id string) {
	t.Helper()
	y.succeed(t, "wait", id)

	if d := y.job(t, id); d.State != job.Succeeded || len(d.Runs) != 1 {
		t.Errorf("the job is %s after %d runs (%s)", d.State, len(d.Runs), d.Reason)
	}

	var want strings.Builder
	for n := range 100 {
		fmt.Fprintf(&want, "line %d\n", n)
	}

	y.await(t, "all output is there", func() bool {
		return len(y.succeed(t, "logs", id).out) >= want.Len()
	})

	if got := y.succeed(t, "logs", id).out; got != want.String() {
		t.Errorf("the output is\n%s", got)
	}
}

func TestAJobGoesOnWithoutTheServer(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	done := filepath.Join(y.Folder, "done")
	id := y.submit(t, counting(done))
	y.awaitOutput(t, id, "line 10\n")

	cmd, lines := y.follow(t, "logs", "-f", id)
	if got := <-lines; got != "line 0" {
		t.Fatalf("logs -f begins with %q", got)
	}

	if err := y.Server().Kill(); err != nil {
		t.Fatal(err)
	}

	awaitFile(t, done)

	if err := y.StartServer(); err != nil {
		t.Fatal(err)
	}

	if err := y.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	y.checkCounted(t, id)

	n := 1
	for line := range lines {
		if line != fmt.Sprintf("line %d", n) {
			t.Errorf("line %d that was followed is %q", n, line)
			break
		}

		n++
	}

	if err := cmd.Wait(); err != nil || n != 100 {
		t.Errorf("logs -f gave %d lines over the restart of the server and ended with %v", n, err)
	}
}

func TestAnAgentThatIsStartedAgainTakesUpItsJobs(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	done := filepath.Join(y.Folder, "done")
	id := y.submit(t, counting(done))
	y.awaitOutput(t, id, "line 10\n")
	y.awaitState(t, id, job.Running) // its output may be here before

	if code, err := y.agents["north"].Stop(patience); err != nil || code != 0 {
		t.Errorf("the agent ended with code %d (%v) when asked to", code, err)
	}

	awaitFile(t, done)

	if d := y.job(t, id); d.State != job.Running {
		t.Errorf("while its agent is away the job is %s (%s)", d.State, d.Reason)
	}

	// The machine knows its yard by now.
	agent := exec.CommandContext(t.Context(), binary, "agent", "run", "--isolation", "none", "--data",
		y.AgentData("north"))
	if _, err := yardtest.Start(agent, y.AgentLog("north")); err != nil {
		t.Fatal(err)
	}

	y.checkCounted(t, id)
}

func TestAServerThatIsAskedToEndLeavesTheJobsAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	id := y.submit(t, counting(filepath.Join(y.Folder, "done")))
	y.awaitOutput(t, id, "line 10\n")

	if _, lines := y.follow(t, "logs", "-f", id); <-lines != "line 0" {
		t.Error("the follower got another line first")
	}

	begun := time.Now()

	code, err := y.Server().Stop(patience)
	if err != nil || code != 0 {
		t.Errorf("the server ended with code %d (%v) when asked to", code, err)
	}

	t.Logf("the server ended after %s", time.Since(begun).Round(time.Millisecond))

	if err := y.StartServer(); err != nil {
		t.Fatal(err)
	}

	if err := y.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	y.checkCounted(t, id)
}

func TestASecondServerWaitsUntilTheFirstIsGone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first := y.Server()

	address, err := yardtest.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	second := &yardtest.Yard{Binary: binary, Folder: y.Folder, Flags: quick, Address: address}
	if err := second.StartServer(); err != nil {
		t.Fatal(err)
	}

	y.await(t, "the second server says that it waits", func() bool {
		return strings.Contains(yardtest.Tail(y.ServerLog(), 100), "another server leads; waiting until it is gone")
	})
	y.succeed(t, "users", "add", "ada") // the first one works on
	token := strings.TrimSpace(y.succeed(t, "tokens", "create", "--scope", "admin", "-q").out)

	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}

	if err := second.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	y.succeed(t, "login", second.URL(), "--token", token, "--yes")

	if got := y.succeed(t, "users", "-q").out; !strings.Contains(got, "ada") {
		t.Errorf("what the first server acknowledged last is gone: the users are %q", got)
	}
}
