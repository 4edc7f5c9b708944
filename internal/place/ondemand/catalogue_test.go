package ondemand

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/provision"
)

func drawOffers(t *rapid.T) []fleet.Offer {
	var list []fleet.Offer
	for i := range rapid.IntRange(1, 12).Draw(t, "offers") {
		o := fleet.Offer{
			Name:      fmt.Sprint("o", i),
			GPU:       rapid.SampledFrom([]string{"T4", "A100"}).Draw(t, "gpu"),
			GPUs:      rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "gpus"),
			GPUMemory: 16 << 30,
			TFLOPS: rapid.Float64Range(50, 500).
				Draw(t, "tflops"),
			CPUs:   64000,
			Memory: 1 << 40,
			Hourly: job.Money(rapid.IntRange(1, 90).Draw(t, "hourly")) * 1e5,
			Boot:   job.Duration(time.Duration(rapid.IntRange(1, 20).Draw(t, "boot")) * time.Minute),
			Spot:   rapid.Bool().Draw(t, "spot"),
		}

		if o.Spot {
			o.LossRate = 0.05
		}

		list = append(list, o)
	}

	return list
}

func drawQuery(t *rapid.T) (fleet.Need, provision.Query) {
	gpus := rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "need")
	return fleet.Need{Nodes: 1, MaxNodes: 1, GPUs: gpus, MaxGPUs: gpus, Place: job.PlaceAny}, provision.Query{
		Now:             time.Unix(0, 0),
		Objective:       job.ObjectiveBalanced,
		HourValue:       rapid.SampledFrom([]money.PerHour{2, 50}).Draw(t, "value"),
		Run:             time.Duration(rapid.IntRange(1, 20000).Draw(t, "seconds")) * time.Second,
		BaseTFLOPS:      100,
		CheckpointEvery: 10 * time.Minute,
	}
}

// TestAnswersDoNotDependOnWhoAskedBefore: what is remembered is a help and nothing else.
func TestAnswersDoNotDependOnWhoAskedBefore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := drawOffers(t)
		kept := NewCatalogue(list)
		for range rapid.IntRange(1, 20).Draw(t, "queries") {
			need, q := drawQuery(t)
			got, ok := kept.First(&need, &q)

			want, fits := NewCatalogue(list).First(&need, &q)
			if ok != fits || cmp.Diff(want, got) != "" {
				t.Fatalf("-new +kept (%v, %v): %s", fits, ok, cmp.Diff(want, got))
			}
		}
	})
}

func TestAnotherListIsAnother(t *testing.T) {
	t.Parallel()
	list := []fleet.Offer{{Name: "a"}, {Name: "b"}}
	o := NewCatalogue(list)
	for name, c := range map[string]struct {
		list []fleet.Offer
		want bool
	}{
		"the same": {list, true}, "a part": {list[:1], false}, "none": {nil, false}, "a copy": {[]fleet.Offer{{Name: "a"}, {Name: "b"}}, false},
	} {
		if got := o.IsOf(c.list); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}

	if !NewCatalogue(nil).IsOf(nil) {
		t.Error("nothing is not nothing")
	}
}
