package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

func TestLifeOfALeaseIsTheTable(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"requested grant":   "booting",
		"requested refuse":  "refused",
		"requested join":    "active",
		"requested release": "releasing",
		"booting join":      "active",
		"booting release":   "releasing",
		"booting gone":      "ended",
		"active grant":      "active",
		"active release":    "releasing",
		"active gone":       "ended",
		"releasing grant":   "releasing",
		"releasing refuse":  "ended",
		"releasing gone":    "ended",
	}

	got := map[string]string{}
	for _, s := range fleet.LeaseStates() {
		for _, ev := range fleet.LeaseEvents() {
			to, err := s.After(ev)
			if err == nil {
				got[string(s)+" "+string(ev)] = string(to)
			} else if to != s {
				t.Errorf("%s after %s is refused and yet %s", s, ev, to)
			}
		}
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}

	diagram := fleet.LeaseDiagram()
	for pair, to := range want {
		from, ev, _ := strings.Cut(pair, " ")
		if line := "    " + from + " --> " + to + ": " + ev + "\n"; from != to && !strings.Contains(diagram, line) {
			t.Errorf("the diagram does not show %q", line)
		}
	}
}

func TestRentIsPaidByStretchesAndAtLeastForATime(t *testing.T) {
	t.Parallel()
	o := fleet.Offer{
		Hourly:           3_600_000,
		BillingIncrement: job.Duration(time.Hour),
		MinBilling:       job.Duration(10 * time.Minute),
	}

	second := fleet.Offer{Hourly: 3_600_000, MinBilling: job.Duration(time.Minute)}
	for _, tc := range []struct {
		offer *fleet.Offer
		kept  time.Duration
		want  money.Amount
	}{
		{&o, 0, 3.6}, {&o, time.Minute, 3.6}, {&o, time.Hour, 3.6}, {&o, time.Hour + 1, 7.2},
		{&second, time.Second, 0.06}, {&second, time.Minute, 0.06}, {&second, 90 * time.Second, 0.09},
	} {
		if got := tc.offer.Cost(job.Duration(tc.kept)); got < tc.want-1e-9 || got > tc.want+1e-9 {
			t.Errorf("kept for %s it costs $%g, want $%g", tc.kept, got, tc.want)
		}
	}
}

func TestNameOfAnOfferSaysAllThatMakesItOne(t *testing.T) {
	t.Parallel()
	o := fleet.Offer{
		Provider:  "aws",
		Type:      "g5.xlarge",
		Region:    "us-east-1",
		Zone:      "a",
		Spot:      true,
		GPU:       "A10G",
		GPUs:      2,
		GPUMemory: 24 << 30,
		CPUs:      4000,
		TFLOPS:    70,
	}

	if got := o.NameOf(); got != "aws/g5.xlarge/us-east-1/a/spot" {
		t.Errorf("it is called %s", got)
	}

	n := o.Node()
	if n.Class != fleet.OnDemand || len(n.Inventory.GPUs) != 2 || n.Inventory.GPUs[1].Model != "A10G" ||
		n.Inventory.CPUs != 4000 {
		t.Errorf("its node is %+v", n)
	}

	if speed, origin := n.Inventory.GPUs[0].TFLOPS(); speed != 52.5 || origin != "table" || o.Speed() != 52.5 {
		t.Errorf("a GPU of it does %g TFLOPS by %s, the offer says %g; want 52.5 by the table", speed, origin, o.Speed())
	}
}
