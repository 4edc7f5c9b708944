package simulator

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// Only simulators that come to the same schedule may be compared by their time.
func TestTheReferenceComesToTheSameSchedule(t *testing.T) {
	t.Parallel()

	jobs, err := trace.Collect(rigid(3_000))
	if err != nil {
		t.Fatal(err)
	}

	for _, j := range jobs { // four at once on average do not fit, so that a queue builds up
		j.At /= 8
	}

	theirs, err := python(t.Context(), jobs, clusterGPUs, 2)
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Skip("python3 is not installed")
	}

	if err != nil {
		t.Fatal(err)
	}

	policy, err := catalogue.All(nil).Make("fifo-strict")
	if err != nil {
		t.Fatal(err)
	}

	ours, err := sim.Run(sim.Config{Policy: policy(), Nodes: nodes(1, clusterGPUs), Jobs: trace.List(jobs)})
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.agrees(ours); err != nil {
		t.Error(err)
	}
	if ours.Waiting.Mean <= 0 || theirs.Seconds <= 0 || theirs.Events != 2*len(jobs) {
		t.Errorf("mean wait %g s; reference: %+v", ours.Waiting.Mean, theirs)
	}

	theirs.Mean *= 1.001
	if err := theirs.agrees(ours); err == nil || !strings.Contains(err.Error(), "the simulators differ") {
		t.Errorf("error %v, want one about the difference", err)
	}
}
