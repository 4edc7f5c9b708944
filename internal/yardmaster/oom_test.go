package yardmaster_test

import (
	"fmt"
	"testing"

	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// A program that says how much it needed skips the GPUs that have more memory, but less than that.
func TestMemoryThatAProgramNeededIsTheFloor(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		needed job.Bytes
		want   job.State // with another node that has 48 GB
	}{
		"unknown":                {0, job.Starting},
		"less than it had":       {20 << 30, job.Starting},
		"less than another has":  {40 << 30, job.Starting},
		"as much as another has": {48 << 30, job.Paused},
		"more than another has":  {50 << 30, job.Paused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := newYardOf(t, yardmaster.Defaults(ordered.FIFO{}))
			y.smallNode("small")

			j := y.submit("alice", spec(1))
			y.round()
			y.running(j, 0)
			y.gpuMemoryNode("middle", 48<<30, 1)

			report := gpuOOM
			report.Needed = tc.needed
			y.ends(j, 0, report)

			y.round()

			if got := y.job(j); got.State != tc.want {
				t.Errorf("job is %s, want %s: %s", got.State, tc.want, got.Reason)
			}
		})
	}
}

// oomAgain starts a job and lets it run out of memory.
func (y *yard) oomAgain(j id.Job, report yardmaster.RankReport) job.Job {
	y.t.Helper()
	y.round()

	if got := y.job(j); got.State != job.Starting {
		y.t.Fatalf("job is %s: %s, want it started", got.State, got.Reason)
	}

	y.running(j, 0)
	y.ends(j, 0, report)

	return y.job(j)
}

// A job that ran out of GPU memory gets a larger GPU, then more GPUs, then a smaller batch, as far as its job file
// allows it and each can be had; then its owner is asked.
func TestOutOfMemoryTriesInOrder(t *testing.T) {
	t.Parallel()

	y := newYardOf(t, yardmaster.Defaults(ordered.FIFO{}))
	y.smallNode("small")

	s := spec(1)
	s.OnOOM = &job.OnOOM{Attempts: 4, MaxGPUs: 4, Halve: "BATCH"}
	s.Env = map[string]string{"BATCH": "5", "SEED": "1"}
	j := y.submit("alice", s)
	y.round()
	y.gpuMemoryNode("larger", 48<<30, 2)

	for i, want := range []string{
		"out of GPU memory; the next run gets GPUs with more than 24 GB; requeued",
		"out of GPU memory; no node it may use has GPUs with more than 48 GB; the next run gets 2 GPUs; requeued",
		"out of GPU memory; no node it may use has GPUs with more than 48 GB; no node it may use has 4 GPUs; " +
			"the next run gets BATCH=2; requeued",
		"out of GPU memory; no node it may use has GPUs with more than 48 GB; no node it may use has 4 GPUs; " +
			"the next run gets BATCH=1; requeued",
	} {
		if got := y.oomAgain(j, gpuOOM); got.Reason != want || got.State != job.Pending && got.State != job.Recovering {
			t.Errorf("after run %d the job is %s: %s, want %s", i+1, got.State, got.Reason, want)
		}
	}

	if got := y.job(j); fmt.Sprint(got.Spec.Env) != "map[BATCH:1 SEED:1]" || got.Spec.Resources.GPUs.Min != 2 {
		t.Errorf("the next run has %v and %v GPUs", got.Spec.Env, got.Spec.Resources.GPUs)
	}

	if got := y.oomAgain(j, gpuOOM); got.State != job.Paused {
		t.Errorf("job is %s: %s, want it held", got.State, got.Reason)
	}

	y.question(inbox.OutOfMemory)

	if s.Env["BATCH"] != "5" || s.Resources.GPUs.Min != 1 {
		t.Error("the spec as submitted has changed")
	}
}

// What the job file does not allow is not tried, and more GPUs do not help the host.
func TestOutOfMemoryTriesOnlyWhatIsAllowed(t *testing.T) {
	t.Parallel()

	hostOOM := yardmaster.RankReport{Cause: job.CauseHostOOM, ExitCode: 137, Reason: "exceeded its memory limit"}

	for name, tc := range map[string]struct {
		on     *job.OnOOM
		report yardmaster.RankReport
		want   job.State
	}{
		"nothing":           {nil, gpuOOM, job.Paused},
		"only attempts":     {&job.OnOOM{Attempts: 9}, gpuOOM, job.Paused},
		"more GPUs":         {&job.OnOOM{MaxGPUs: 2}, gpuOOM, job.Recovering},
		"GPUs for the host": {&job.OnOOM{MaxGPUs: 2}, hostOOM, job.Paused},
		"a smaller batch":   {&job.OnOOM{Halve: "BATCH"}, hostOOM, job.Recovering},
		"a batch of one":    {&job.OnOOM{Halve: "ONE"}, hostOOM, job.Paused},
		"another variable":  {&job.OnOOM{Halve: "WORD"}, gpuOOM, job.Paused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := newYardOf(t, yardmaster.Defaults(ordered.FIFO{}))
			y.gpuMemoryNode("only", 24<<30, 2)

			s := spec(1)
			s.Resources.Memory = 200 << 30 // twice as much is not to be had
			s.OnOOM, s.Env = tc.on, map[string]string{"BATCH": "64", "ONE": "1", "WORD": "large"}
			j := y.submit("alice", s)

			if got := y.oomAgain(j, tc.report); got.State != tc.want {
				t.Errorf("job is %s: %s, want %s", got.State, got.Reason, tc.want)
			}
		})
	}
}
