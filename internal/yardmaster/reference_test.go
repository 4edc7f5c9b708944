package yardmaster_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// gpuNode joins a node with GPUs of a model.
func (y *yard) gpuNode(name, model string, gpus int) {
	y.t.Helper()
	inv := fleet.Inventory{Address: name, CPUs: 64000, Memory: 256 << 30}
	for i := range gpus {
		gpu := gpuspec.Describe(fleet.GPU{Index: i, UUID: fmt.Sprint(name, i), Model: model, Memory: 40 << 30})
		if gpu.Peak == 0 {
			gpu = gpuspec.Describe(fleet.GPU{Index: i, UUID: fmt.Sprint(name, i), Model: model})
		}

		inv.GPUs = append(inv.GPUs, gpu)
	}

	y.ok(yardmaster.Join{Token: "join", Name: name, Inventory: inv})
}

// stored returns a job as it was stored last.
func stored(b *yardmaster.Batch, j id.Job) job.Job {
	for _, k := range b.Jobs {
		if k.ID == j {
			return k
		}
	}

	return job.Job{}
}

// expecting is a job of an hour.
func expecting(gpus int, kinds ...string) *job.Spec {
	s := spec(gpus)
	s.Expect = job.Duration(time.Hour)
	for _, k := range kinds {
		s.Resources.GPU = append(s.Resources.GPU, job.GPUKind{Model: k})
	}

	return s
}

func TestWhatAnExpectedRunTimeIsFor(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.Offers = []fleet.Offer{
		{Name: "aws/dear", Provider: "aws", GPU: "H100", GPUs: 8, TFLOPS: 989, CPUs: 64000, Memory: 1 << 40, Hourly: 40e6},
		{Name: "aws/cheap", Provider: "aws", GPU: "L4", GPUs: 8, TFLOPS: 121, CPUs: 64000, Memory: 1 << 40, Hourly: 4e6},
	}

	for name, tt := range map[string]struct {
		nodes []string // models of nodes with 4 GPUs
		spec  *job.Spec
		want  string
	}{
		"the most common":                         {[]string{"T4", "V100", "V100", "A100"}, expecting(1), "V100"},
		"the faster of two that are as common":    {[]string{"T4", "A100"}, expecting(1), "A100"},
		"the model that it asks for":              {[]string{"T4", "V100", "V100"}, expecting(1, "T4"), "T4"},
		"the slowest of several":                  {[]string{"A100", "V100"}, expecting(1, "A100", "V100"), "V100"},
		"one that only offers have":               {[]string{"T4"}, expecting(1, "H100"), "H100"},
		"one that nobody has":                     {[]string{"T4"}, expecting(1, "H200"), "H200"},
		"the cheapest offer, if no node could":    {[]string{"T4"}, expecting(8), "L4"},
		"no GPU":                                  {[]string{"T4"}, expecting(0), ""},
		"wherever the job may run":                {[]string{"T4", "V100", "V100"}, inCloud(expecting(1)), "V100"},
		"the model of a kind, whatever its place": {[]string{"T4"}, inCloud(expecting(1, "T4")), "T4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYardOf(t, cfg)
			for i, model := range tt.nodes {
				y.gpuNode(fmt.Sprintf("n%d", i), model, 4)
			}

			j := y.submit("alice", tt.spec)
			b := y.Take()
			if got := stored(b, j).Reference; got.GPU != tt.want || got.GPU != "" && got.TFLOPS <= 0 {
				t.Errorf("an hour on %+v, want on %q", got, tt.want)
			}
		})
	}
}

func inCloud(s *job.Spec) *job.Spec {
	s.Place = job.PlaceCloud
	return s
}

// TestTheFleetDoesNotChangeHowLongAJobIs: what an expected run time is for is recorded, and neither nodes that come
// later nor where the job may run change how long it is on a node.
func TestTheFleetDoesNotChangeHowLongAJobIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		models := rapid.SampledFrom([]string{"T4", "V100", "A100", "L4", "A10G"})
		own, later := models.Draw(rt, "own"), models.Draw(rt, "later")
		count := rapid.IntRange(1, 3).Draw(rt, "nodes")

		ends := func(late int, change func(*job.Spec)) time.Duration {
			y := newYard(t)
			for i := range count {
				y.gpuNode(fmt.Sprintf("n%d", i), own, 4)
			}

			s := expecting(4)
			change(s)
			y.submit("alice", s)

			for i := range late {
				y.gpuNode(fmt.Sprintf("z%d", i), later, 4)
			}

			y.Round(y.now)

			n, err := y.NodeByName("n0")
			if err != nil || len(n.Room.Holds) != 1 {
				return -1
			}

			return n.Room.Holds[0].Ends.Sub(y.now)
		}

		alone := ends(0, func(*job.Spec) {})
		if alone != time.Hour {
			rt.Fatalf("on what it asks for it takes %s", alone)
		}

		if got := ends(rapid.IntRange(1, 9).Draw(rt, "late"), func(*job.Spec) {}); got != alone && got != -1 {
			rt.Errorf("with other nodes that came later it takes %s, want %s", got, alone)
		}

		if got := ends(0, func(s *job.Spec) { s.Place = job.PlaceLocal }); got != alone {
			rt.Errorf("with a place it takes %s, want %s", got, alone)
		}
	})
}

// TestWhatIsRememberedOfRuns: runs that succeeded count, for jobs that run the same; failures do not.
func TestWhatIsRememberedOfRuns(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.gpuNode("a", "A100", 8)

	run := func(command string, ran time.Duration, end yardmaster.RankReport) {
		s := spec(1)
		s.Run = command
		j := y.submit("alice", s)
		y.Round(y.now)

		r := id.NewRun(j, 1)
		y.ok(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{{Run: r, State: job.RunRunning, Started: y.now}}})
		y.now = y.now.Add(ran)
		end.Run, end.State, end.Ended = r, job.RunEnded, y.now
		y.ok(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{end}})
		y.Take()
	}

	for i := range 6 {
		run(fmt.Sprintf("python train.py --seed %d", i), time.Hour, yardmaster.RankReport{})
		run(fmt.Sprintf("python train.py --seed %d", i), time.Second, yardmaster.RankReport{ExitCode: 1, Cause: job.CauseUserCode})
		run("python eval.py", time.Minute, yardmaster.RankReport{})
	}

	got := y.Estimate("alice", "python train.py --seed 99", 1)
	if got.Mean != time.Hour || got.Basis != "6 past runs of train.py" {
		t.Errorf("train.py is expected to take %s by %q, want 1h by 6 past runs of train.py", got.Mean, got.Basis)
	}
}

// TestPoliciesAreToldOfEndedRunsInTime: of the first runs at once, of one more among many after a minute.
func TestPoliciesAreToldOfEndedRunsInTime(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.gpuNode("a", "A100", 8)
	told := func() uint64 { return y.View(y.now).Past.Version() }

	run := func() {
		r := id.NewRun(y.submit("alice", spec(1)), 1)
		y.Round(y.now)
		y.ok(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{{Run: r, State: job.RunRunning, Started: y.now}}})
		y.now = y.now.Add(time.Second)
		y.ok(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{{Run: r, State: job.RunEnded, Ended: y.now}}})
		y.Take()
	}

	for i := range uint64(40) {
		run()

		if got := told(); i < 16 && got != i+1 {
			t.Fatalf("after %d runs %d are told", i+1, got)
		}
	}

	y.now = y.now.Add(time.Minute)
	if got := told(); got != 40 {
		t.Fatalf("%d runs are told, want 40", got)
	}

	run()

	if got := told(); got != 40 {
		t.Errorf("%d runs are told at once, want 40", got)
	}

	y.now = y.now.Add(time.Minute)
	if got := told(); got != 41 {
		t.Errorf("%d runs are told after a minute, want 41", got)
	}
}
