package e2e_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

func TestUpStartsAWholeYardAndTakesItUpAgain(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	p := newPerson(t, folder, "me")

	address, err := yardtest.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	log := filepath.Join(folder, "up.log")

	args := []string{
		"up",
		"--data",
		filepath.Join(folder, "data"),
		"--listen",
		address,
		"--name",
		"here",
		"--fake-gpus",
		"2xA100:80GB",
		"--report-every",
		"200ms",
	}

	start := func(more ...string) *yardtest.Process {
		t.Helper()
		cmd := p.Command(t.Context(), append(append([]string{}, args...), more...)...)
		up, err := yardtest.Start(cmd, log)
		if err != nil {
			t.Fatal(err)
		}

		return up
	}

	up := start("--submit", p.write(t, "name: first\n"+script("echo hello from up")))

	p.await(
		t,
		"the first job is over",
		func() bool { return strings.Contains(yardtest.Tail(log, 100), "Ctrl-C stops the yard") },
	)

	if text := yardtest.Tail(log, 100); !strings.Contains(text, "hello from up") ||
		!strings.Contains(text, "https://"+address) {
		t.Errorf("up says\n%s", text)
	}

	var n api.Node
	p.decode(t, &n, "nodes", "here", "-o", "json")
	if len(n.GPUs) != 2 || !n.FakeGPUs || !n.GPUs[0].Fake {
		t.Errorf("the node has the GPUs %+v", n.GPUs)
	}

	id := p.submit(
		t,
		script(
			"trap 'echo stopped; exit 1' TERM",
			"echo run $TRAINYARD_EPOCH",
			"if test $TRAINYARD_EPOCH -gt 1; then exit 0; fi",
			"while true; do sleep 0.05; done",
		),
	)

	p.awaitOutput(t, id, "run 1")

	if err := up.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}

	if code, err := up.Wait(patience); err != nil || code != 0 {
		t.Errorf("up ended with code %d (%v)", code, err)
	}

	if found, err := yardtest.Processes(folder); err != nil || len(found) > 0 {
		t.Errorf("up left processes behind: %v (%v)", found, err)
	}

	up = start()
	p.await(t, "the yard is up again", func() bool { return p.run(t, "whoami").code == 0 })
	p.succeed(t, "wait", id)

	if d := p.job(t, id); d.State != job.Succeeded || len(d.Runs) != 2 {
		t.Errorf("the job that was stopped with the yard is %s after %d runs (%s)", d.State, len(d.Runs), d.Reason)
	}

	if got := p.succeed(t, "logs", id, "--stream", "stdout").out; got != "run 1\nstopped\nrun 2\n" {
		t.Errorf("its output is %q", got)
	}

	if code, err := up.Stop(patience); err != nil || code != 0 {
		t.Errorf("up ended with code %d (%v)", code, err)
	}
}
