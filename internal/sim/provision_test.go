package sim_test

import (
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/sim"
)

// TestAJobStartsOnTheNodeThatWasProvisionedForIt: the price of a provisioned node includes its
// energy, also where the tariff has a row for its GPUs. Else another machine looks cheaper than the
// one that is there, and the job waits for that for ever.
func TestAJobStartsOnTheNodeThatWasProvisionedForIt(t *testing.T) {
	t.Parallel()
	offer := h100At(0.2)
	offer.GPU = "A100"
	w := savingsWorld{
		policy: byRules(), offers: []fleet.Offer{offer}, jobs: []*sim.Job{training("j", 0, job.ObjectiveBalanced)},
		tariff: &fleet.Tariff{Energy: 1, Nodes: []fleet.NodePrice{
			{GPU: "A100", Hourly: []money.PerHour{0}, Watts: []float64{300, 900}},
		}},
		nodes: []fleet.Node{withGPUs("t", fleet.Reserved, 1, "T4")},
	}

	if got := w.cordoned(0, "t").live(t).ended["j1"]; got != 35*time.Minute {
		t.Errorf("the job ended after %s, want 35m: 5 to boot and 30 to run", got)
	}
}

// TestASpotNodeIsReclaimed: a job of an hour has worked for half of it when its node is gone. It saves a
// checkpoint every 20 minutes, and within the notice.
func TestASpotNodeIsReclaimed(t *testing.T) {
	t.Parallel()

	const gone, boot, work, backoff = 35 * time.Minute, 5 * time.Minute, time.Hour, 5 * time.Second

	for name, tt := range map[string]struct {
		notice time.Duration
		ends   time.Duration
	}{
		"without notice": {0, gone + backoff + boot + work - 20*time.Minute},
		"after a notice": {2 * time.Minute, gone - 2*time.Minute + boot + work - 28*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			j := training("j", 0, job.ObjectiveTime)
			j.Spec.Checkpoint = &job.Checkpoint{Dir: "c", Every: job.Duration(20 * time.Minute)}
			j.Spec.Speed = job.NewSpeed(work.Seconds(), 0, 0, job.Rate{GPU: "H100", GPUs: 1, PerSecond: 1})
			offer := h100At(1)
			offer.Spot = true

			var ended time.Duration
			run(t, sim.Config{
				Policy: byRules()(), Jobs: &list{jobs: []*sim.Job{j}},
				Cloud: &sim.Cloud{Offers: []fleet.Offer{offer}, Reclaims: []sim.Reclaim{{At: gone, Notice: tt.notice}}},
				OnEnd: func(o *sim.Outcome) { ended = o.Ended },
			})

			if ended != tt.ends {
				t.Errorf("the job ended after %s, want %s", ended, tt.ends)
			}
		})
	}
}
