package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// TestWhatARunUsesIsShownAndAdvisedOn follows a run from its first measurement to the recommendation at its end.
func TestWhatARunUsesIsShownAndAdvisedOn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob := y.researcher("ada"), y.researcher("bob")
	n := y.join("n1")
	n.listen()
	j, run := n.started(ada, "resources: {memory: 16GB}")

	began := y.clock.Now()
	for i := range 10 {
		n.tell(api.RankReport{Run: run, State: job.RunRunning, Started: began, Use: &job.Use{
			At: began.Add(time.Duration(10*i) * time.Second), CPUSeconds: float64(5 * i), Memory: 3 << 30,
			Unmeasured: []job.Unmeasured{{Resource: job.ResourceNetwork, Why: "shared"}},
		}})
	}

	page, err := ada.Utilizations(t.Context())
	y.must(err)

	if len(page.Jobs) != 1 || page.Jobs[0].Job != j || *page.Jobs[0].Now.CPUs != 0.5 || *page.Jobs[0].Now.Memory != 3<<30 {
		t.Errorf("ada sees %+v", page.Jobs)
	}

	page, err = bob.Utilizations(t.Context())
	y.must(err)

	if len(page.Jobs) != 0 {
		t.Errorf("bob sees %+v", page.Jobs)
	}

	_, err = bob.Utilization(t.Context(), j)
	wantFault(t, err, fault.NotFound, "job_not_found")

	n.tell(api.RankReport{
		Run: run, State: job.RunEnded, Started: began, Ended: began.Add(100 * time.Second),
		Use: &job.Use{At: began.Add(100 * time.Second), CPUSeconds: 51, MemoryPeak: 4 << 30},
	})

	d, err := ada.Job(t.Context(), j)
	y.must(err)

	if u := d.Utilization; u == nil || !u.Ended || *u.Total.CPUSeconds != 51 || *u.Peak.Memory != 4<<30 ||
		u.Asked.Memory != 16<<30 || u.Total.Sent != nil {
		t.Fatalf("the ended job: %+v", u)
	}

	if text := fmt.Sprint(d.Utilization.Advice); !strings.Contains(text, "memory: 5GB (it used 4GB of 16GB at most)") {
		t.Errorf("the recommendation is %s", text)
	}

	page, err = ada.Utilizations(t.Context())
	y.must(err)

	if len(page.Jobs) != 0 {
		t.Errorf("a job that has ended is shown as running: %+v", page.Jobs)
	}
}
