package aws

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

func TestOffersCountAgainstTheLimitOfTheirFamily(t *testing.T) {
	t.Parallel()

	for kind, want := range map[string][2]string{
		"g5.xlarge":        {quotaG, quotaGSpot},
		"gr6.4xlarge":      {quotaG, quotaGSpot},
		"vt1.3xlarge":      {quotaG, quotaGSpot},
		"p2.xlarge":        {quotaP, quotaPSpot},
		"p4de.24xlarge":    {quotaP, quotaPSpot},
		"p5en.48xlarge":    {quotaP, quotaP5Spot},
		"p6-b200.48xlarge": {quotaP, ""}, // which limit its spot machines have is not known
		"c6gn.large":       {quotaStandard, quotaStandardSpot},
		"im4gn.large":      {quotaStandard, quotaStandardSpot},
		"inf2.xlarge":      {"", ""},
		"dl1.24xlarge":     {"", ""},
		"trn1.2xlarge":     {"", ""},
		"u-6tb1.metal":     {"", ""},
		"mac.metal":        {"", ""},
		"":                 {"", ""},
	} {
		plain, spot := fleet.Offer{Type: kind}, fleet.Offer{Type: kind, Spot: true}
		if got := [2]string{quotaOf(&plain), quotaOf(&spot)}; got != want {
			t.Errorf("%s counts against %q, want %q", kind, got, want)
		}
	}
}

func TestLimitSaysHowManyThereCanBe(t *testing.T) {
	t.Parallel()
	offer := func(kind string, cpus job.CPUs, most int) fleet.Offer {
		return fleet.Offer{Type: kind, CPUs: cpus * 1000, MaxNodes: most}
	}
	got := within([]fleet.Offer{
		offer("g5.xlarge", 4, 0), offer("g5.48xlarge", 192, 0), offer("g5.16xlarge", 64, 0),
		offer("p5.48xlarge", 192, 0), offer("inf2.xlarge", 4, 0), offer("m5.large", 2, 0),
	}, map[string]float64{quotaG: 64, quotaP: 0})

	want := []fleet.Offer{
		offer("g5.xlarge", 4, 16),
		offer("g5.16xlarge", 64, 1),
		offer("inf2.xlarge", 4, 0),
		offer("m5.large", 2, 0),
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("offers (-want +got):\n%s", diff)
	}
}
