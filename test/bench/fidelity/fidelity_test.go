package fidelity

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/test/yardtest"
)

var someProbe = probe{overhead: 200 * time.Millisecond, startup: time.Second, stepsRate: 20, boot: 4 * time.Second}

func TestEveryStreamRunsInTheSimulator(t *testing.T) {
	t.Parallel()

	for _, s := range streams(false) {
		for _, text := range policies {
			policy, err := catalogue.All(nil).Make(text)
			if err != nil {
				t.Fatal(err)
			}

			o, err := simulate(func() place.Policy { return policy() }, &s, &someProbe)
			if err != nil {
				t.Fatalf("%s under %s: %v", s.name, text, err)
			}

			if o.cost <= 0 || o.energyCost <= 0 || o.completion <= 0 || o.p95 < o.completion || o.makespan < o.p95 {
				t.Errorf("%s under %s: %+v", s.name, text, *o)
			}

			// Without checkpoints nothing may move: a moved job would begin anew on a real yard.
			if o.stops > 0 {
				t.Errorf("%s under %s: %d runs were stopped", s.name, text, o.stops)
			}
		}
	}
}

func TestALiveStreamIsMeasured(t *testing.T) {
	t.Parallel()

	folder, err := yardtest.NewFolder("fidelity-test-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := errors.Join(yardtest.KillAll(folder), os.RemoveAll(folder)); err != nil {
			t.Error(err)
		}
	})

	if err := yardtest.Build(folder, "trainyard/cmd/trainyard"); err != nil {
		t.Fatal(err)
	}

	s := &stream{name: "two", machines: []machine{{"v100-1", "1xV100:16GB"}}, tasks: []task{
		{name: "first", gpus: 1, work: 0.5, objective: job.ObjectiveTime, place: job.PlaceAny, deadline: time.Hour},
		{name: "second", gpus: 1, work: 0.5, objective: job.ObjectiveTime, place: job.PlaceAny},
	}}

	o, err := runLive(t.Context(), filepath.Join(folder, "trainyard"), folder, "fifo", s, &someProbe)
	if err != nil {
		t.Fatal(err)
	}

	// One after the other on the one GPU: however slow the machine is, both take at least their work.
	if o.makespan < 1 || o.completion < 0.75 || o.lateness != 0 || o.cost <= 0 || o.stops != 0 {
		t.Errorf("measured %+v", *o)
	}
}

func TestDeviationsAreOfWhatReallyHappened(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer

	figures, err := report(&b, []cell{
		{"steady", "fifo", &outcome{cost: 2, completion: 10, p95: 20}, &outcome{cost: 1.9, completion: 10.2, p95: 21}},
		{"bursts", "fifo", &outcome{cost: 1, completion: 10, lateness: 40}, &outcome{cost: 1.02, completion: 10, lateness: 30}},
	})
	if err != nil {
		t.Fatal(err)
	}

	for key, want := range map[string]float64{
		"worst_cost_dev_pct": 5, "worst_completion_dev_pct": 2, "worst_p95_dev_pct": 5, "worst_lateness_dev_pct": 25,
		"steady_fifo_cost_dev_pct": -5,
	} {
		if got := figures[key]; got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%s is %g, want %g", key, got, want)
		}
	}

	if !strings.Contains(b.String(), "worst: cost 5.0 %") {
		t.Errorf("printed:\n%s", &b)
	}
}
