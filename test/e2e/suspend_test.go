package e2e_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"trainyard/internal/job"
)

// printing is a job file for one GPU whose program prints lines until a file is there.
func printing(text, until, more string) string {
	return fmt.Sprintf("run: |\n  n=0; while ! test -e %s; do n=$((n+1)); echo %s $n; sleep 0.05; done\n"+
		"resources: {gpus: 1, cpus: 0.1}\ngrace: 5s\n%s", until, text, more)
}

// TestAJobLendsItsGPUWhileServerAndAgentAreKilled suspends a training for a short job, and kills the server and
// the agent while it is suspended: it continues in the same run, and has missed nothing.
func TestAJobLendsItsGPUWhileServerAndAgentAreKilled(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--policy", "srtf")
	flags := []string{"--fake-gpus", "1xA100:80GB"}
	y.join(t, []string{"north"}, flags...)

	longDone, shortDone := filepath.Join(y.Folder, "long"), filepath.Join(y.Folder, "short")
	long := y.submit(t, printing("long", longDone, "expect: 5h\ncheckpoint: {dir: ckpt}\n"))
	y.awaitOutput(t, long, "long 3\n")

	short := y.submit(t, printing("short", shortDone, "expect: 5m\n"))
	y.awaitOutput(t, short, "short 3\n")

	if d := y.job(t, long); d.Status != job.StatusSuspended {
		t.Fatalf("the training is %s: %s", d.Status, d.Reason)
	}

	if err := y.Server().Kill(); err != nil {
		t.Fatal(err)
	}

	if err := y.agents["north"].Kill(); err != nil {
		t.Fatal(err)
	}

	y.start(t)

	p, err := y.StartAgent("north", "", flags...)
	if err != nil {
		t.Fatal(err)
	}

	y.agents["north"] = p
	y.awaitOutput(t, short, "short 20\n")

	if d := y.job(t, long); d.Status != job.StatusSuspended {
		t.Fatalf("after server and agent were killed the training is %s: %s", d.Status, d.Reason)
	}

	y.succeed(t, "run", "-d", "--cpus", "0.1", "--", "touch", shortDone)
	y.succeed(t, "wait", short)
	y.await(t, "the training continues", func() bool { return y.job(t, long).Status == job.StatusRunning })
	y.succeed(t, "run", "-d", "--cpus", "0.1", "--", "touch", longDone)
	y.succeed(t, "wait", long)

	if d := y.job(t, long); d.State != job.Succeeded || len(d.Runs) != 1 {
		t.Errorf("the training %s after %d runs, want one", d.State, len(d.Runs))
	}

	if got := y.events(t, "run.resumed"); len(got) != 1 {
		t.Errorf("it was resumed %d times: %q", len(got), got)
	}
}
