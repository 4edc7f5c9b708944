package trace_test

import (
	"testing"
	"time"

	"trainyard/internal/sim/trace"
)

// The figures are those that seeds of the workload were published with.
func TestAndreasTables(t *testing.T) {
	var tesla, turing float64
	jobs := trace.AndreasJobs()
	for i := range jobs {
		for _, e := range jobs[i].Times {
			switch {
			case e.GPU == trace.Turing:
				turing += e.Seconds * float64(jobs[i].Epochs)
			case e.GPUs == 1:
				tesla += e.Seconds * float64(jobs[i].Epochs)
			}
		}
	}

	if len(jobs) != 10 {
		t.Fatalf("%d job types", len(jobs))
	}

	near(t, "the mean time on one TESLA", tesla/10, 7598, 0.0005)
	near(t, "the mean time on one TURING", turing/10, 17754, 0.0005)

	if fast, slow := jobs[0].Span(); fast.Round(time.Millisecond) != 3666144*time.Millisecond ||
		slow.Round(time.Millisecond) != 13285344*time.Millisecond {
		t.Errorf("J1 takes %v to %v", fast, slow)
	}

	tariff, nodes := trace.AndreasTariff(), trace.AndreasNodes(4)
	for used, want := range map[int]float64{0: 0, 1: 0.121019, 2: 0.159837, 3: 0.198655, 4: 0.237472} {
		near(t, "the price of a TESLA node", float64(tariff.Rate(tariff.Of(&nodes[0]), used)), want, 1e-5)
	}

	for used, want := range map[int]float64{1: 0.091335, 2: 0.109603} {
		near(t, "the price of a TURING node", float64(tariff.Rate(tariff.Of(&nodes[1]), used)), want, 1e-5)
	}

	if len(nodes[2].Inventory.GPUs) != 4 || len(nodes[3].Inventory.GPUs) != 2 || nodes[3].ID != "n4" {
		t.Errorf("got %+v", nodes[3])
	}

	if c := jobs[0].Speed(0, 0).On(trace.Turing, 0); c.MaxGPUs() != 1 {
		t.Errorf("a job runs on %d TURINGs", c.MaxGPUs())
	}
}

func TestDatacenterTables(t *testing.T) {
	jobs := trace.DatacenterJobs()
	if len(jobs) != 15 || jobs[12].Name != "J14" || jobs[12].Batch != 256 || jobs[12].Epochs != 2000 {
		t.Fatalf("got %d jobs, the 13th is %+v", len(jobs), jobs[12])
	}

	for _, c := range []struct {
		job, config int
		hours       float64
	}{{0, 0, 23.5}, {0, 7, 17.7}, {0, 8, 23.7}, {3, 7, 9.7}, {3, 15, 13.8}, {2, 3, 18.2}} {
		near(t, "the time of "+jobs[c.job].Name, jobs[c.job].Times[c.config].Seconds*500/3600, c.hours, 0.006)
	}

	tariff, nodes := trace.DatacenterTariff(), trace.DatacenterNodes(2)
	if a, b := tariff.Rate(tariff.Of(&nodes[0]), 8), tariff.Rate(tariff.Of(&nodes[1]), 3); a != 4.48 || b != 1.86 {
		t.Errorf("got %g and %g", a, b)
	}
}

func TestFreeTrainTable(t *testing.T) {
	models := trace.FreeTrainModels()
	if len(models) != 7 || models[5].Name != "shufflenet" {
		t.Fatalf("got %+v", models)
	}

	near(t, "the efficiency of AlexNet on 64 nodes", models[0].Samples[6]/models[0].Samples[0]/64, 0.44, 0.02)
	near(t, "the efficiency of VGG-16 on 64 nodes", models[1].Samples[6]/models[1].Samples[0]/64, 0.92, 0.02)
}
