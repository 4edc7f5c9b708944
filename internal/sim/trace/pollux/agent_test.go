package pollux

import (
	"testing"

	"trainyard/internal/sim"
)

// synthetic is an application with large batches that are worth it, measured on one to four GPUs of
// a node.
func synthetic() *Profile {
	var list []measured
	for gpus := 1; gpus <= 4; gpus++ {
		for _, local := range []float64{16, 32, 64, 128} {
			sync := 0.01 * float64(gpus-1)
			list = append(list, measured{
				shape: shape{1, gpus}, stepTime: stepTime{local, 0.02 + local/1000 + sync, sync}, maxGPUs: 4, minGPUs: gpus,
			})
		}
	}

	p := &Profile{Name: "app", Epochs: 2, kinds: []*stepTimes{newStepTimes("T4", list)}, slow: 1}
	for _, batch := range []float64{32, 512} {
		p.trained = append(p.trained, training{
			batch: batch, progress: []float64{1000, 2000}, sqr: []float64{1, 1}, variance: []float64{10, 100},
		})
	}

	return p
}

func TestAnAgentReportsOnlyWhatItMeasuredOnTheGPUsItHas(t *testing.T) {
	t.Parallel()
	p := synthetic()
	a := NewAgent(p, 0)
	if _, until := a.Step(sim.GPUs{Model: "T4", Count: 1, Nodes: 1}, 0); a.Report() != nil || until != 1000 {
		t.Fatalf("before its first step it reports %+v, valid until %g", a.Report(), until)
	}

	first := a.batch

	for _, on := range []sim.GPUs{{Model: "T4", Count: 1, Nodes: 1}, {Model: "T4", Count: 2, Nodes: 1}} {
		a.Step(on, 10)
		batch := a.batch
		a.Step(on, 20)

		r := a.Report()
		if r == nil || r.Batch != float64(on.Count)*batch.Each*batch.Passes {
			t.Fatalf("on %+v it reports %+v, it trained with %+v", on, r, batch)
		}

		for _, o := range a.model.Seen {
			if o.GPUs > on.Count {
				t.Errorf("on %d GPUs it knows of %d", on.Count, o.GPUs)
			}
		}
	}

	if first.Each*first.Passes != p.base() {
		t.Errorf("before it had measured anything it trained with %+v, want the base batch of %g", first, p.base())
	}
}

func TestAnAgentComesCloseToTheBestBatch(t *testing.T) {
	t.Parallel()
	p := synthetic()
	a := NewAgent(p, 0)

	for count := 1; count <= 4; count++ {
		on := sim.GPUs{Model: "T4", Count: count, Nodes: 1}

		var rate float64
		for range 6 {
			rate, _ = a.Step(on, 1500)
		}

		best := p.best(p.kinds[0], shape{1, count}, 1)
		if rate < 0.9*best || rate > 1.02*best {
			t.Errorf("on %d GPUs it does %.4g a second, the best is %.4g", count, rate, best)
		}
	}
}
