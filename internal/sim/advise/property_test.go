package advise_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim/advise"
)

// drawHistory makes a yard and some days of it.
func drawHistory(t *rapid.T) *advise.History {
	h := &advise.History{
		From:   begin,
		To:     begin.Add(4 * 24 * hour),
		Policy: "rules",
		Idle:   5 * time.Minute,
		Tariff: rent(0.4),
	}

	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		h.Nodes = append(
			h.Nodes,
			box("node-"+string(rune('a'+i)), rapid.SampledFrom([]fleet.Class{fleet.Local, fleet.Reserved}).Draw(t, "class"), 2),
		)
	}

	if rapid.Bool().Draw(t, "provisions") {
		h.Offers = append(
			h.Offers,
			offer("v1", 2, false, 0),
			offer("v1", 0.7, true, rapid.SampledFrom([]float64{0.02, 0.5}).Draw(t, "losses")),
		)
	}

	at := time.Duration(0)
	for i := range rapid.IntRange(1, 25).Draw(t, "jobs") {
		at += time.Duration(rapid.IntRange(0, 240).Draw(t, "gap")) * time.Minute
		j := lasted(
			at,
			time.Duration(rapid.IntRange(1, 900).Draw(t, "lasts"))*time.Minute,
			rapid.SampledFrom([]job.Objective{job.ObjectiveTime, job.ObjectiveCost, job.ObjectiveBalanced}).Draw(t, "objective"),
		)

		j.ID = id.NewJob(uint64(i + 1))
		h.Jobs = append(h.Jobs, j)
	}

	return h
}

func TestTheYardAsItWasDiffersInNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		a, err := advise.Again(t.Context(), advise.Question{History: drawHistory(rt), Policy: policies, Seed: 7, Parallel: 2})
		if err != nil {
			rt.Fatal(err)
		}

		if a.Saved != 0 || a.SavedLow != 0 || a.SavedHigh != 0 || a.Mean != 0 || a.P95 != 0 || a.OnDemand != 0 ||
			a.NeverFinished != 0 ||
			a.Confidence.PaidOff != 0 ||
			a.Confidence.Chance != 0 ||
			a.Verdict != advise.NotWorth {
			rt.Fatalf("the same yard differs: %+v", a)
		}
	})
}

func TestTheSameQuestionGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	var first *advise.Report

	for parallel := 1; parallel <= 2; parallel++ {
		h := twoADay(7 * hour)
		h.From, h.To, h.Policy = begin, begin.Add(span), "rules"

		r, err := advise.Advise(
			t.Context(),
			advise.Question{
				History:     h,
				Policy:      policies,
				Seed:        3,
				Parallel:    parallel,
				ExtraOffers: []fleet.Offer{offer("v1", 0.6, true, 0.1)},
			},
		)
		if err != nil {
			t.Fatal(err)
		}

		if first == nil {
			first = r
		}

		if d := cmp.Diff(first, r); d != "" {
			t.Errorf("with %d replays at once:\n%s", parallel, d)
		}
	}
}

func TestSpotNodesAreTakenBackAtTheirOwnRate(t *testing.T) {
	t.Parallel()
	const hours = 2000

	lost := 0
	for seed := range uint64(20) {
		lost += len(advise.Takes(seed, advise.Machine{Losses: 0.1, To: hours}, advise.Machine{Losses: 0.2, To: hours}))
	}

	// 12,000 are expected, and the standard deviation is 110.
	if lost < 11_500 || lost > 12_500 {
		t.Errorf("%d nodes were lost, want about 12,000", lost)
	}
}

func TestWhatComesLaterDoesNotChangeWhatWasTakenBackBefore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		one := advise.Machine{Losses: rapid.Float64Range(0.01, 3).Draw(t, "losses"), To: 100}

		two := advise.Machine{
			Losses: rapid.Float64Range(0.01, 3).Draw(t, "losses"),
			From:   50,
			To:     rapid.Float64Range(60, 900).Draw(t, "until"),
		}

		before := func(list []time.Duration) []time.Duration {
			return slices.DeleteFunc(list, func(d time.Duration) bool { return d >= 50*hour })
		}

		alone, with := advise.Takes(seed, one), advise.Takes(seed, one, two)
		if !slices.IsSorted(with) || len(with) < len(alone) || !slices.Equal(before(slices.Clone(alone)), before(with)) {
			t.Fatalf("alone %v, with another from hour 50 on %v", alone, with)
		}
	})
}
