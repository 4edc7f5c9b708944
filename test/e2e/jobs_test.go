package e2e_test

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/job"
)

// follow starts a command and returns the lines it prints as they come.
func (p person) follow(t *testing.T, args ...string) (*exec.Cmd, <-chan string) {
	t.Helper()
	cmd := p.Command(t.Context(), args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	lines := make(chan string, 10_000)
	go func() {
		defer close(lines)

		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}

		_, _ = io.Copy(io.Discard, out) // a line that is too long must not block the command
	}()

	return cmd, lines
}

func TestCtrlCDetachesAndTheJobGoesOn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	gate := filepath.Join(y.Folder, "gate")
	file := y.write(t, script("echo begun", "while ! test -e "+gate+"; do sleep 0.05; done", "echo over"))
	for _, args := range [][]string{{"submit", "-y", file}, {"logs", "-f", "j1"}} {
		cmd, lines := y.follow(t, args...)
		if got := <-lines; got != "begun" {
			t.Fatalf("%v printed %q first", args, got)
		}

		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}

		for range lines {
		}

		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("%v ended with %v, want code 130", args, err)
		}
	}

	y.awaitState(t, "j1", job.Running) // and not cancelled; its output may be here before the news that it runs

	y.succeed(t, "run", "-y", "--cpus", "0.1", "--", "touch", gate)
	y.succeed(t, "wait", "j1")

	if got := y.succeed(t, "logs", "j1").out; got != "begun\nover\n" {
		t.Errorf("the output is %q", got)
	}
}

func TestCancelGivesTimeToSaveAndKillDoesNot(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})

	file := script(
		"trap 'echo saving; sleep 0.3; echo saved; exit 1' TERM",
		"echo begun",
		"while true; do sleep 0.05; done",
	)

	cancelled, killed := y.submit(t, file), y.submit(t, file)

	deaf := y.submit(
		t,
		strings.Replace(script("trap '' TERM", "echo begun", "while true; do sleep 0.05; done"), "5s", "1s", 1),
	)

	for _, id := range []string{cancelled, killed, deaf} {
		y.awaitOutput(t, id, "begun")
	}

	y.succeed(t, "cancel", cancelled, deaf)
	y.succeed(t, "kill", killed)

	for _, id := range []string{cancelled, killed, deaf} {
		y.exits(t, 103, "wait", id)
	}

	if got := y.succeed(t, "logs", cancelled, "--stream", "stdout").out; got != "begun\nsaving\nsaved\n" {
		t.Errorf("the cancelled job printed %q", got)
	}

	if got := y.succeed(t, "logs", killed, "--stream", "stdout").out; got != "begun\n" {
		t.Errorf("the killed job printed %q", got)
	}

	if got := y.succeed(t, "cancel", cancelled).out; !strings.Contains(got, "had already ended") {
		t.Errorf("cancelled once more: %q", got)
	}

	y.exits(t, 104, "resume", killed)
}

func TestPauseAndResumeGoOnFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})

	id := y.submit(t, "checkpoint: {dir: ckpt}\n"+script(
		`n=$(cat $TRAINYARD_CHECKPOINT_DIR/n 2>/dev/null || echo 0)`,
		`test "$(cat ckpt/n 2>/dev/null || echo 0)" = $n || exit 9`,
		`echo "begins at $n in run $TRAINYARD_EPOCH"`,
		`if test $TRAINYARD_EPOCH -gt 1; then exit 0; fi`,
		`while true; do n=$((n + 1)); echo $n > ckpt/new; mv ckpt/new ckpt/n; echo saved; sleep 0.05; done`))

	y.awaitOutput(t, id, "saved")
	y.succeed(t, "pause", id)
	y.awaitState(t, id, job.Paused)
	y.succeed(t, "resume", id)
	y.succeed(t, "wait", id)
	out := strings.TrimSpace(y.succeed(t, "logs", id+".2").out)
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(out, "begins at "), " in run 2"))
	if err != nil || n < 1 {
		t.Errorf("the second run did not go on from the checkpoint: %q", out)
	}
}

func TestALineIsSeenSoonAfterItIsPrinted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	cmd, lines := y.follow(t, "submit", "-y", y.write(t, script("for i in $(seq 20); do date +%s%N; sleep 0.1; done")))
	var total, most time.Duration

	count := 0
	for line := range lines {
		printed, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			t.Fatal(err)
		}

		late := time.Since(time.Unix(0, printed))
		total, most, count = total+late, max(most, late), count+1
	}

	if err := cmd.Wait(); err != nil || count != 20 {
		t.Fatalf("%d lines came, want 20 (%v)", count, err)
	}

	t.Logf(
		"a line is seen %s after it is printed on average, %s at most",
		(total / 20).Round(time.Millisecond),
		most.Round(time.Millisecond),
	)
}

func TestAJobThatIsTooSlowIsStopped(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	id := y.submit(t, "max_duration: 1s\n"+script("echo begun", "sleep 10000"))
	y.exits(t, 100, "wait", id)

	if d := y.job(t, id); d.Status != job.StatusTimeout {
		t.Errorf("it ended as %s (%s)", d.Status, d.Reason)
	}
}
