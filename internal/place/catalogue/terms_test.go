package catalogue_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/place/placetest"
)

// provisions returns the offers of which a policy provisions nodes for a job that would wait six hours for the only
// node. One offer is slower to boot and cheaper.
func provisions(t *testing.T, text string, objective job.Objective, lasts time.Duration) (names []string) {
	t.Helper()
	make, err := catalogue.All(nil).Make(text)
	if err != nil {
		t.Fatal(err)
	}

	c := placetest.NewCluster()
	c.Box("own", 1)
	holder := c.Add(placetest.Lasting(6*time.Hour, 1))
	holder.Outlook.Resumes = false // it cannot be preempted
	c.Book(place.Start{Item: holder, Allocations: []place.Allocation{{Node: "own", GPUs: 1}}})

	it := c.Add(placetest.Lasting(lasts, 1))
	it.Since = c.Now
	it.Spec = &job.Spec{Objective: objective}

	v := c.View()
	fast := fleet.Offer{
		Name: "fast", Provider: "aws", Type: "a100", GPU: "NVIDIA A100-SXM4-80GB", GPUs: 1, GPUMemory: 80 << 30,
		CPUs: 64000, Memory: 1 << 40, Hourly: 3e6, Boot: job.Duration(4 * time.Minute),
	}
	cheap := fast
	cheap.Name, cheap.Hourly, cheap.Boot = "cheap", 2.9e6, job.Duration(5*time.Minute)
	v.Offers = []fleet.Offer{fast, cheap}

	for _, p := range make().Plan(v).Provisions {
		names = append(names, p.Offer)
	}

	return names
}

// TestTheTermsOfTheCommonRuleApplyUnderEveryPolicy: under every policy that is wrapped, an operator can set what the
// decision to provision depends on.
func TestTheTermsOfTheCommonRuleApplyUnderEveryPolicy(t *testing.T) {
	t.Parallel()

	for _, name := range catalogue.All(nil).Names() {
		if name == "rules" {
			continue
		}

		for _, tc := range []struct {
			params    string
			objective job.Objective
			want      bool
		}{
			{"", job.ObjectiveCost, false},
			{":provision_patience=1h", job.ObjectiveCost, true},
			{"", job.ObjectiveTime, true},
			{":provision_time=0.01", job.ObjectiveTime, false},
			{":provision_setup=9h", job.ObjectiveTime, false},
			{"", job.ObjectiveBalanced, true},
			{":provision_balanced=0.01", job.ObjectiveBalanced, false},
		} {
			got := provisions(t, name+tc.params, tc.objective, time.Hour)
			if len(got) > 0 != tc.want {
				t.Errorf("%s provisions %v for a job with objective %s, want %v", name+tc.params, got, tc.objective, tc.want)
			}
		}
	}

	for text, want := range map[string]string{
		"fifo:provision_patience=1h": "cheap", "fifo:provision_patience=1h:provision_cost=50": "fast",
	} {
		if got := provisions(t, text, job.ObjectiveCost, time.Hour); !slices.Equal(got, []string{want}) {
			t.Errorf("%s provisions %v, want %s", text, got, want)
		}
	}

	// Nothing is known of how long it lasts.
	for text, want := range map[string]bool{"fifo": true, "fifo:provision_guess=10000h": false} {
		if got := provisions(t, text, job.ObjectiveTime, 0); len(got) > 0 != want {
			t.Errorf("%s provisions %v for a job of unknown length, want %v", text, got, want)
		}
	}

	_, err := catalogue.All(nil).Make("rules:provision_patience=1h")
	if err == nil || !strings.Contains(err.Error(), `no parameter "provision_patience"`) {
		t.Errorf("rules, which has patience itself, takes provision_patience: %v", err)
	}
}
