package sim_test

import (
	"math"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place/ordered"
	"trainyard/internal/sim"
)

func TestDataAndCheckpointsTakeTimeToTravel(t *testing.T) {
	t.Parallel()
	cloud := box("b", 2)
	cloud.Class = fleet.Reserved
	j := working(0, 1000, 2, 0, 0)
	j.Data, j.CheckpointSize = 100<<30, 10<<30
	var out sim.Outcome
	r := run(t, sim.Config{
		Policy: shifter{to: "b", at: sim.Epoch().Add(200 * time.Second)}, Nodes: []fleet.Node{box("a", 1), cloud},
		Network: &sim.Network{Storage: 1 << 30, Inside: 1 << 30, Across: 100 << 20, Price: 0.01},
		Jobs:    &list{jobs: []*sim.Job{j}}, OnEnd: func(o *sim.Outcome) { out = *o },
	})

	// 100 s for the data; 200 units until 200 s; its checkpoint is brought to the store in 10 s and from there in
	// 102.4 s, the data in 100 s meanwhile; 800 units at 4 a second.
	if want := 210*time.Second + 102400*time.Millisecond + 200*time.Second; out.Ended != want {
		t.Errorf("ended at %v, want %v", out.Ended, want)
	}

	if want := 0.01 * float64(10<<30) / 1e9; math.Abs(r.Money-want) > 1e-9 {
		t.Errorf("it cost %g, want %g for what went across", r.Money, want)
	}
}

func TestTwoTransfersShareAWay(t *testing.T) {
	t.Parallel()
	a, b := working(0, 100, 1, 0, 0), working(0, 100, 1, 0, 0)
	a.Data, b.Data = 10<<30, 10<<30
	a.Spec.Resources.GPUs.Max, b.Spec.Resources.GPUs.Max = 1, 1
	var ends []time.Duration
	run(t, sim.Config{
		Policy: ordered.FIFO{}, Nodes: []fleet.Node{box("a", 2)}, Network: &sim.Network{Storage: 1 << 30},
		Jobs: &list{jobs: []*sim.Job{a, b}}, OnEnd: func(o *sim.Outcome) { ends = append(ends, o.Ended) },
	})

	if len(ends) != 2 || ends[0] != 110*time.Second || ends[1] != 120*time.Second {
		t.Errorf("they ended at %v, want 110 s and 120 s: the second waits for the first one's data", ends)
	}
}

func TestAJobEndsWhenItsErrorIsWhatItIsToBe(t *testing.T) {
	t.Parallel()
	j := working(0, 1000, 1, 0, 0)
	goal := 0.3
	j.Spec.Target = &job.Target{Metric: "loss", AtMost: &goal}
	j.Spec.Resources.GPUs.Max = 1
	j.ErrorCurve = []sim.Point{{X: 0, Y: 1}, {X: 0.5, Y: 0.4}, {X: 0.75, Y: 0.2}, {X: 1, Y: 0.1}}
	var out sim.Outcome
	run(
		t,
		sim.Config{
			Policy: ordered.FIFO{},
			Nodes:  []fleet.Node{box("a", 1)},
			Jobs:   &list{jobs: []*sim.Job{j}},
			OnEnd:  func(o *sim.Outcome) { out = *o },
		},
	)

	if want := 625 * time.Second; out.Ended.Round(time.Millisecond) != want || out.State != job.Succeeded {
		t.Errorf("%s at %v, want it to have succeeded at %v, after five eighths of its work", out.State, out.Ended, want)
	}
}

func TestRentIsPaidForTheHourThatWasBegun(t *testing.T) {
	t.Parallel()
	n := box("a", 1)
	n.Class = fleet.OnDemand
	r := run(t, sim.Config{
		Policy: ordered.FIFO{},
		Nodes:  []fleet.Node{n},
		Tariff: &fleet.Tariff{
			Nodes: []fleet.NodePrice{
				{Class: fleet.OnDemand, Hourly: []money.PerHour{2, 2}, BillingIncrement: job.Duration(time.Hour)},
			},
		},
		Jobs:    &list{jobs: []*sim.Job{lasting(0, 30*time.Minute, 1)}},
		Changes: &happenings{list: []sim.Change{{At: 75 * time.Minute, Kind: sim.NodeCordoned, ID: "a"}}},
		Until:   3 * time.Hour,
	})

	if math.Abs(r.Money+r.IdleMoney-4) > 1e-9 || math.Abs(r.Money-1) > 1e-9 {
		t.Errorf("%g were paid for use and %g for nothing, want 1 and 3: two hours in all", r.Money, r.IdleMoney)
	}
}
