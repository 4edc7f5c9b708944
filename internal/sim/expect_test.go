package sim_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/forecast"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/gpuspec"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
	"trainyard/internal/place/ordered"
	"trainyard/internal/place/rules"
	"trainyard/internal/queue"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// nodeOf returns a node with GPUs of a kind.
func nodeOf(name, model string, gpus int) fleet.Node {
	n := fleet.Node{
		ID: id.Node(name), Class: fleet.Local, State: fleet.Ready,
		Inventory: fleet.Inventory{CPUs: 64000, Memory: 256 << 30},
	}

	for i := range gpus {
		gpu := gpuspec.Describe(fleet.GPU{Model: model})
		gpu.Index = i
		n.Inventory.GPUs = append(n.Inventory.GPUs, gpu)
	}

	return n
}

// TestOneMeaningOfExpect: whoever asks how long a job takes on a node gets the same answer, by one rule.
func TestOneMeaningOfExpect(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		models := rapid.SampledFrom([]string{"T4", "V100", "A100", "H100", "L4", "A10G", "no such GPU"})
		reference := gpuspec.Describe(fleet.GPU{Model: models.Draw(t, "reference")})
		tflops, _ := reference.TFLOPS()
		ref := job.Reference{GPU: reference.Model, TFLOPS: tflops}

		gpus := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "gpus")
		node := nodeOf("a", models.Draw(t, "node"), gpus)
		spec := &job.Spec{
			Name: "train", Run: "python train.py", Objective: job.ObjectiveBalanced,
			Place:     rapid.SampledFrom([]job.Place{job.PlaceAny, job.PlaceLocal}).Draw(t, "place"),
			Resources: job.Resources{GPUs: job.Range{Min: gpus, Max: gpus}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000},
			Expect:    job.Duration(time.Duration(rapid.IntRange(10, 2000).Draw(t, "minutes")) * time.Minute),
		}

		if rapid.Bool().Draw(t, "limited") {
			spec.MaxDuration = job.Duration(time.Duration(rapid.IntRange(10, 2000).Draw(t, "limit")) * time.Minute)
		}

		// What the rule says, written down once more.
		want := time.Duration(spec.Expect).Seconds()
		if here, _ := node.Inventory.GPUs[0].TFLOPS(); here > 0 && ref.TFLOPS > 0 && ref.GPU != node.Inventory.GPUs[0].Model {
			want *= ref.TFLOPS / here
		}

		if spec.MaxDuration > 0 {
			want = min(want, time.Duration(spec.MaxDuration).Seconds())
		}

		for who, got := range lengths(t, spec, ref, node) {
			if math.Abs(got-want) > 1e-3*want+1 {
				t.Errorf("%s: %g s on %s, want %g", who, got, node.Inventory.GPUs[0].Model, want)
			}
		}
	})
}

// lengths returns how long a job takes on a node, in seconds, as policies, the simulator and the forecast say.
func lengths(t *rapid.T, spec *job.Spec, ref job.Reference, node fleet.Node) map[string]float64 {
	now := sim.Epoch()
	all := map[string]float64{}

	view := func() *place.View {
		table := fleet.NewTable()
		table.Put(&node, 0)

		v := &place.View{Now: now, Rooms: table.Rooms(), Queue: queue.New()}
		for number := uint64(1); number <= 2; number++ {
			j := &job.Job{ID: id.NewJob(number), Owner: "ada", Spec: spec, Submitted: now, Reference: ref}
			o := job.NewOutlook(j)
			it := &queue.Item{
				Job: j.ID, Number: number, User: j.Owner, Lasts: o.Duration(spec, spec.Resources.GPUs.Min, 1),
				Outlook: o, Spec: spec,
				Since: now,
			}

			v.Queue.Add(it, fleet.NeedOf(spec, job.Floor{}, nil))
		}

		return v
	}

	// Each policy starts the first job, and says when the second can have its node.
	for _, p := range []place.Policy{ordered.FIFO{}, ordered.Conservative{}, rules.New(rules.Defaults())} {
		plan := p.Plan(view())
		if len(plan.Starts) != 1 || plan.Reservation == nil {
			t.Fatalf("%s plans %+v", p.Name(), plan)
		}

		all[p.Name()] = plan.Reservation.At.Sub(now).Seconds()
	}

	dated := view()
	for _, it := range dated.Queue.Items() { // it plans for jobs with a deadline
		it.Outlook.Deadline = now.AddDate(1, 0, 0)
	}

	assumptions := problem.Standard()
	y := problem.NewYard(dated, &assumptions, false)
	y.ListCandidates()
	for _, c := range y.Tasks[0].Candidates {
		all["andreas"] = c.Duration
	}

	// The simulator stops a run at its limit as the yard does, so the limit is its own.
	truth := &sim.Job{Name: "train", Owner: "ada", Spec: spec, Duration: time.Duration(spec.Expect), Reference: &ref}
	result, err := sim.Run(sim.Config{
		Policy: ordered.FIFO{}, Nodes: []fleet.Node{node}, Jobs: trace.List([]*sim.Job{truth}),
	})
	if err != nil {
		t.Fatal(err)
	}

	all["simulator"] = result.Makespan.Seconds()

	j := &job.Job{ID: "j1", Owner: "ada", Spec: spec, Submitted: now, Reference: ref}
	tflops, _ := node.Inventory.GPUs[0].TFLOPS()
	f := forecast.Make(&forecast.Input{Job: j, Now: now, Runs: []forecast.Stretch{{
		Epoch: 1, GPU: node.Inventory.GPUs[0].Model, GPUs: len(node.Inventory.GPUs), Nodes: 1, TFLOPS: tflops, From: now,
	}}})

	all["forecast"] = math.NaN()
	for _, m := range f.Methods {
		if m.Method == calibrate.MethodExpect {
			all["forecast"] = m.Remaining
		}
	}

	if math.IsNaN(all["forecast"]) {
		t.Fatalf("no expectation in %+v", f.Methods)
	}

	return all
}
