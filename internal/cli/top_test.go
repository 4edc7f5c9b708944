package cli

import (
	"net/http"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// someUse is what a running job on two nodes and an ended one use.
func someUse() []api.Utilization {
	return []api.Utilization{
		{
			Job: "j7", Name: "resnet50", Owner: "grace", Run: "j7.2", Elapsed: 7980, Samples: 1596,
			Asked: api.Asked{Nodes: 2, GPUs: 4, CPUs: 8000, Memory: 64 << 30},
			Now: &api.UseAmounts{CPUs: new(14.4), Memory: new(int64(70 << 30)), GPUBusy: new(0.93),
				GPUMemory: new(int64(61 << 30))},
			Mean: api.UseAmounts{CPUs: new(13.8), Memory: new(int64(68 << 30)), GPUBusy: new(0.9)},
			Peak: api.UseAmounts{CPUs: new(16.2), Memory: new(int64(36 << 30)), GPUBusy: new(0.97),
				GPUMemory: new(int64(62 << 30))},
			Total: api.Totals{CPUSeconds: new(110124.0), Read: new(int64(3 << 40)), Written: new(int64(12 << 30))},
			Missing: []api.Missing{{
				Resource: job.ResourceNetwork, Why: "the run shares the network of its node with everything else there",
			}},
		},
		{
			Job: "j6", Name: "sweep", Owner: "ada", Run: "j6.1", Elapsed: 600, Samples: 120, Ended: true,
			Asked:   api.Asked{Nodes: 1, CPUs: 8000, Memory: 32 << 30},
			Mean:    api.UseAmounts{CPUs: new(1.1), Memory: new(int64(3 << 30))},
			Peak:    api.UseAmounts{CPUs: new(1.9), Memory: new(int64(6 << 30))},
			Total:   api.Totals{CPUSeconds: new(660.0), Received: new(int64(5 << 20)), Sent: new(int64(1 << 20))},
			Missing: []api.Missing{{Resource: job.ResourceDisk, Why: "the run has no cgroup"}},
			Advice: []string{
				"memory: 8GB (it used 6GB of 32GB at most)", "cpus: 3 (it used 1.1 on average and 1.9 at most, and asked for 8)",
			},
		},
	}
}

func TestUseIsShown(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/utilization", api.UtilizationPage{Jobs: someUse()[:1]})

	ended := api.JobDetail{Job: someJobs()[2], Spec: []byte(`{"run":"train"}`), Utilization: &someUse()[1]}
	y.answer("GET /api/v1/jobs/j6", ended)

	for name, args := range map[string][]string{
		"top": {"top"}, "top-json": {"top", "-o", "json"}, "job-used": {"job", "j6", "--no-plot"},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), args...); code != exit.OK {
			t.Fatalf("%v: exit code %d: %s", args, code, p.stderr)
		}

		golden(t, name, p.stdout.String())
	}
}

// TestTheUseOfAJobIsFollowedToItsEnd: where nobody looks there is a line for each measurement.
func TestTheUseOfAJobIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	looks := 0

	y.mux.HandleFunc("GET /api/v1/jobs/j7", func(w http.ResponseWriter, _ *http.Request) {
		looks++
		use := someUse()[0]
		detail := api.JobDetail{Job: someJobs()[0], Spec: []byte(`{"run":"train"}`), Utilization: &use}
		detail.ID, detail.State = "j7", job.Running
		use.Rates = &api.UseRates{Read: new(float64(3 << 20)), Written: new(0.0)}
		use.At = new(now)

		switch looks {
		case 1:
		case 2:
			use.At = new(now.Add(5 * time.Second))
			use.Now.GPUBusy = new(0.5)
		default:
			detail.State = job.Succeeded
		}

		reply(w, http.StatusOK, detail)
	})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "top", "j7"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	golden(t, "top-live", p.stdout.String())

	known := map[id.Job]time.Time{"j7": now}
	if old := liveLines([]api.Utilization{{Job: "j7", At: new(now)}}, known); len(old) > 0 {
		t.Errorf("a measurement is written twice: %s", old)
	}
}
