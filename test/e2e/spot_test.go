package e2e_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"trainyard/internal/clock"
	"trainyard/internal/cloud/process"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// TestASpotMachineIsReclaimedAndItsJobContinuesElsewhere: the cloud gives notice, the agent reads it, the job saves and
// leaves within it, and continues on another machine where it was.
func TestASpotMachineIsReclaimedAndItsJobContinuesElsewhere(t *testing.T) {
	t.Parallel()
	h := newHybrid(t, yardtest.Cloud{
		Provision: soon, Notice: "5m",
		Offers: "{type: big, gpu: A100, gpu_memory: 40GB, gpus: 1, cpus: 2, memory: 4GB, spot: $1.20}",
	})
	id := h.submit(t, onGPU("", strings.Split(strings.TrimSpace(saving), "\n")...))
	h.awaitOutput(t, id, "begins at 0")
	h.await(t, "a checkpoint in the catalogue", func() bool { return len(h.events(t, "checkpoint.stored")) > 0 })

	cloud, err := process.New(process.Config{
		Yard: h.cloud.Yard(), Dir: h.cloud.Dir(), Clock: clock.Wall{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := cloud.TakeBack(t.Context(), h.books(t)[0].Machine); err != nil {
		t.Fatal(err)
	}

	h.succeed(t, "wait", id)

	d := h.job(t, id)
	if len(d.Runs) != 2 || d.Runs[0].Cause != job.CausePreempted || nodeOf(t, d, 2) == nodeOf(t, d, 1) {
		t.Fatalf("the runs are %+v", d.Runs)
	}

	if got := h.events(t, "node.reclaim_notice"); len(got) != 1 || !strings.Contains(got[0], fleet.SpotReclaimed) {
		t.Errorf("events %q", got)
	}

	want := fmt.Sprintf("stopped at %d", h.beginning(t, id+".2"))
	if out := h.succeed(t, "logs", id+".1").out; !strings.Contains(out, want) {
		t.Errorf("the second run began where the first was not: %q, want %s", out, want)
	}

	h.awaitEmpty(t)
}
