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
