package yard

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

func TestYardKeepsItsJobsOverAKillAndLeavesNothing(t *testing.T) {
	t.Parallel()

	if testing.Short() {
		t.Skip("starts a server")
	}

	binary, err := Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	y, err := Start(t.Context(), Options{Binary: binary})
	if err != nil {
		t.Fatal(err)
	}

	stop := func() {
		if err := y.Stop(); err != nil {
			t.Error(err)
		}
	}
	defer stop() // a second Stop does no harm

	client, err := y.Client()
	if err != nil {
		t.Fatal(err)
	}

	defer client.Close()

	reply, err := client.Submit(t.Context(), api.SubmitRequest{File: `run: "true"`}, "")
	if err != nil || len(reply.Jobs) != 1 {
		t.Fatalf("submit = %v, %v", reply, err)
	}

	if err := y.Kill(); err != nil {
		t.Fatal(err)
	}

	if _, err := client.Whoami(t.Context()); err == nil {
		t.Error("the killed server still answers")
	}

	if err := y.Run(t.Context()); err != nil {
		t.Fatal(err)
	}

	jobs, err := y.Jobs(t.Context(), job.Pending)
	if err != nil || len(jobs) != 1 || !jobs[reply.Jobs[0].ID] {
		t.Errorf("jobs after the restart = %v, %v; want the one submitted before", jobs, err)
	}

	if n, err := y.Metric(t.Context(), "trainyard_queued_jobs"); err != nil || n != 1 {
		t.Errorf("waiting jobs = %v, %v; want 1", n, err)
	}

	token, err := y.JoinToken(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}

	node, err := y.Join(t.Context(), token, api.JoinRequest{Name: "one", Inventory: fleet.Inventory{CPUs: 1000}})
	if err != nil {
		t.Fatal(err)
	}

	defer node.Close()

	if r, err := node.Report(
		t.Context(),
		api.Report{Capability: api.Capability, Boot: "b", Seq: 1},
	); err != nil ||
		r.Interval <= 0 {
		t.Errorf("report = %v, %v; want an interval", r, err)
	}

	if cpu, err := y.CPU(); err != nil || cpu <= 0 {
		t.Errorf("processor time = %v, %v; want some", cpu, err)
	}

	// A process that left the daemons' groups, as a run's supervisor does.
	run := exec.Command("/bin/sh", "-c", "read line", "run", y.dir+"/node/run")
	run.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if _, err := run.StdinPipe(); err != nil { // kept open, so that it waits
		t.Fatal(err)
	}

	if err := run.Start(); err != nil {
		t.Fatal(err)
	}

	pid := y.daemons.PID("server")
	stop()

	if _, err := os.Stat(y.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}

	var ended *exec.ExitError
	if err := run.Wait(); !errors.As(err, &ended) || ended.ExitCode() != -1 {
		t.Errorf("the run ended with %v, want it killed by a signal", err)
	}

	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the server is still there: %v", err)
	}
}

func TestProcessorTimeOfAProgramWithAnyName(t *testing.T) {
	t.Parallel()
	line := "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 150 25 40 10 20 0 8 0 100 0 0"
	if own, children, err := cpuOf(line); err != nil || own != 1750*time.Millisecond || children != 500*time.Millisecond {
		t.Errorf("cpuOf = %v, %v, %v; want 1.75s and 0.5s", own, children, err)
	}

	for _, bad := range []string{"", "7 (a)", "7 (a) S 1 2 3 4 5 6 7 8 9 10 x y 0 0 0"} {
		if _, _, err := cpuOf(bad); err == nil {
			t.Errorf("cpuOf(%q): no error", bad)
		}
	}
}
