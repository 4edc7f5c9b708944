package rules_test

import (
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/rules"
)

// TestWhereAJobGoes puts one job into yards in which nothing or little runs.
func TestWhereAJobGoes(t *testing.T) {
	t.Parallel()
	mixed := func(y *yard) {
		y.node("strong", fleet.Local, 4, h100())
		y.node("weak", fleet.Local, 4, t4())
	}

	for _, tc := range []struct {
		name string
		set  func(*yard)
		want want
		on   string // "" if it waits
	}{
		{"a time-sensitive job takes the fastest", mixed, want{gpus: 1, lasts: time.Hour, objective: job.ObjectiveTime}, "strong"},
		{"a cost-sensitive job takes the weakest that will do", mixed, want{gpus: 1, lasts: time.Hour, objective: job.ObjectiveCost}, "weak"},
		{"unless it needs the strong one", mixed, want{gpus: 1, kind: "H100", lasts: time.Hour, objective: job.ObjectiveCost}, "strong"},
		{"or would miss its deadline", mixed, want{gpus: 1, lasts: 10 * time.Hour, due: 2 * time.Hour, objective: job.ObjectiveCost}, "strong"},
		{"a job of unknown length starts too", mixed, want{gpus: 1, objective: job.ObjectiveTime}, "strong"},
		{"a job without GPUs starts on a node without", func(y *yard) {
			y.node("cpu", fleet.Local, 0, fleet.GPU{})
			mixed(y)
		}, want{cpus: 4000, lasts: time.Hour}, "cpu"},
		{"a job without GPUs starts beside GPUs if there is nothing else", mixed, want{cpus: 4000, lasts: time.Hour, objective: job.ObjectiveCost}, "weak"},
		// Newcomer 29: it went to the fastest GPUs, which others could use.
		{"a balanced job without GPUs starts beside the slowest GPUs", mixed, want{cpus: 4000, lasts: time.Hour}, "weak"},
		{"a job starts on a node with as many CPUs as it asks for", mixed, want{cpus: 32_000, lasts: time.Hour}, "weak"},
		{"a node with unlike GPUs gives those that are wanted", func(y *yard) {
			n := *y.node("both", fleet.Local, 4, t4())
			n.Inventory.GPUs = slices.Clone(n.Inventory.GPUs)
			for i := 2; i < 4; i++ {
				n.Inventory.GPUs[i] = a100()
				n.Inventory.GPUs[i].Index = i
			}

			y.table.Put(&n, 0)
		}, want{gpus: 2, kind: "A100", lasts: time.Hour}, "both"},
		{"nothing goes to a drained node", func(y *yard) {
			n := *y.node("a", fleet.Local, 4, a100())
			n.Cordoned = true
			y.table.Put(&n, 0)
		}, want{gpus: 1, lasts: time.Hour}, ""},
		{"nothing goes to a suspect node", func(y *yard) {
			n := *y.node("a", fleet.Local, 4, a100())
			n.State = fleet.Suspect
			y.table.Put(&n, 0)
		}, want{gpus: 1, lasts: time.Hour}, ""},
		{"a job goes back to where it ran before", func(y *yard) {
			y.node("a", fleet.Local, 4, a100())
			y.node("b", fleet.Local, 4, a100())
		}, want{gpus: 1, lasts: time.Hour, prefer: "b"}, "b"},
		{"and elsewhere if there is no room", func(y *yard) {
			y.node("a", fleet.Local, 4, a100())
			y.node("b", fleet.Local, 4, a100())
			y.occupy("b", time.Minute, want{gpus: 4, lasts: time.Hour})
		}, want{gpus: 1, lasts: time.Hour, prefer: "b"}, "a"},
		{"a job for the cloud does not start here", mixed, want{gpus: 1, lasts: time.Hour, place: job.PlaceCloud}, ""},
		{"a job for local nodes does not start in the cloud", func(y *yard) { y.node("r", fleet.Reserved, 4, a100()) }, want{gpus: 1, lasts: time.Hour, place: job.PlaceLocal}, ""},
		{"of equal nodes the local one is taken before the reserved one", func(y *yard) {
			y.node("a-reserved", fleet.Reserved, 4, a100())
			y.node("b-local", fleet.Local, 4, a100())
		}, want{gpus: 1, lasts: time.Hour}, "b-local"},
		{"it packs: the tightest room first", func(y *yard) {
			y.node("a", fleet.Local, 4, a100())
			y.node("b", fleet.Local, 4, a100())
			y.occupy("b", time.Minute, want{gpus: 3, lasts: 10 * time.Hour})
		}, want{gpus: 1, lasts: time.Hour}, "b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			tc.set(y)
			it := y.submit(tc.want)
			p := y.plan(t)

			got := ""
			if nodes := where(p, it); nodes != nil {
				got = string(nodes[0])
			}

			if got != tc.on {
				t.Errorf("it starts on %q, want %q: %+v", got, tc.on, p)
			}
		})
	}
}

// TestElasticJobsGetWhatIsFree: a job that can use more GPUs gets more, unless it is
// cost-sensitive or someone else's node would be taken.
func TestElasticJobsGetWhatIsFree(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		objective job.Objective
		want      int
	}{{job.ObjectiveTime, 6}, {job.ObjectiveBalanced, 6}, {job.ObjectiveCost, 2}} {
		y := newYard()
		y.node("a", fleet.Local, 8, a100())
		it := y.submit(want{gpus: 2, most: 6, lasts: time.Hour, objective: tc.objective})

		p := y.plan(t)
		if len(p.Starts) != 1 || p.Starts[0].Item != it || bits.OnesCount64(p.Starts[0].Allocations[0].GPUs) != tc.want {
			t.Errorf("%s: the plan is %+v, want %d GPUs", tc.objective, p, tc.want)
		}
	}
}

// TestWhoWaitsKnowsWhatThisPlanStarts: a job that finds no room waits for one that
// starts in the same round rather than be provisioned for.
func TestWhoWaitsKnowsWhatThisPlanStarts(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 8, a100())
	y.offer("aws/a100x8", 8, a100(), 30, 3*time.Minute)
	y.submit(want{gpus: 8, lasts: 10 * time.Minute, objective: job.ObjectiveCost})
	y.submit(want{gpus: 8, lasts: 20 * time.Minute, objective: job.ObjectiveCost})

	p := y.plan(t)
	if len(p.Starts) != 1 || len(p.Provisions) != 0 || p.Reservation == nil ||
		!p.Reservation.At.Equal(y.now.Add(10*time.Minute)) {
		t.Errorf("the plan is %+v, want one start and the node kept for the other in 10 minutes", p)
	}
}

// TestJobsWithoutGPUsLeaveBookingsAlone: CPUs are not counted as GPUs.
func TestJobsWithoutGPUsLeaveBookingsAlone(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 8, a100())
	y.occupy("a", time.Minute, want{gpus: 4, lasts: time.Hour})
	wide := y.submit(want{gpus: 8, lasts: time.Hour, prio: 50})
	small := y.submit(want{cpus: 4000, lasts: 10 * time.Hour})
	short := y.submit(want{gpus: 2, lasts: 30 * time.Minute})
	long := y.submit(want{gpus: 2, lasts: 3 * time.Hour})

	p := y.plan(t)
	if p.Reservation == nil || p.Reservation.Job != wide.Job || !p.Reservation.At.Equal(y.now.Add(59*time.Minute)) {
		t.Fatalf("held is %+v, want the node for the wide job in 59 minutes", p.Reservation)
	}

	if where(p, small) == nil || where(p, short) == nil || where(p, long) != nil {
		t.Errorf("the plan is %+v: want the job without GPUs and the short one to start, and the long one to wait", p.Starts)
	}
}

// TestARoomShortOfCPUsIsWaitedFor: it is not only GPUs that a job waits for.
func TestARoomShortOfCPUsIsWaitedFor(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 8, a100())
	y.occupy("a", 0, want{gpus: 1, cpus: 62_000, lasts: time.Hour})

	it := y.submit(want{gpus: 1, cpus: 8000, lasts: time.Hour})
	if p := y.plan(t); len(p.Starts) > 0 || p.Reservation == nil || p.Reservation.Job != it.Job ||
		!p.Reservation.At.Equal(y.now.Add(time.Hour)) {
		t.Errorf("the plan is %+v, want the node kept in an hour", p)
	}
}

// TestPreemption tells when a cost-sensitive job gives way to a time-sensitive one.
func TestPreemption(t *testing.T) {
	t.Parallel()
	victim := want{gpus: 4, lasts: 10 * time.Hour, objective: job.ObjectiveCost, resumes: true, every: time.Hour}
	with := func(change func(*want)) want {
		w := victim
		change(&w)
		return w
	}

	urgent := want{gpus: 4, lasts: time.Hour, objective: job.ObjectiveTime}
	for _, tc := range []struct {
		name  string
		first want
		since time.Duration
		want  want
		stops bool
	}{
		{"a time-sensitive job goes first", victim, time.Hour, urgent, true},
		{"a balanced job waits", victim, time.Hour, want{gpus: 4, lasts: time.Hour}, false},
		{"a balanced victim is left alone", with(func(w *want) { w.objective = job.ObjectiveBalanced }), time.Hour, urgent, false},
		{"one that cannot resume is left alone", with(func(w *want) { w.resumes = false }), time.Hour, urgent, false},
		{"one that began nine minutes ago is left alone", victim, 9 * time.Minute, urgent, false},
		{"one that began ten minutes ago is not", victim, 10 * time.Minute, urgent, true},
		{"one that ends in a moment is waited for", with(func(w *want) { w.lasts = time.Hour }), time.Hour - 2*time.Second, urgent, false},
		{"one of higher priority is left alone", with(func(w *want) { w.prio = 50 }), time.Hour, urgent, false},
		{"gangs wait", victim, time.Hour, want{gpus: 4, nodes: 2, lasts: time.Hour, objective: job.ObjectiveTime}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			y.node("a", fleet.Local, 4, a100())
			y.occupy("a", tc.since, tc.first)
			it := y.submit(tc.want)

			p := y.plan(t)
			if tc.stops != (len(p.Stops) == 1) || tc.stops != (where(p, it) != nil) {
				t.Errorf("the plan is %+v, want a stop: %v", p, tc.stops)
			}
		})
	}
}

// TestTheVictimIsWhoLosesLeast: by what was done since the last checkpoint, then by
// what it costs, and not more of them than needed.
func TestTheVictimIsWhoLosesLeast(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.tariff = &fleet.Tariff{Energy: 0.3, Nodes: []fleet.NodePrice{{Watts: []float64{100, 400, 700, 1000, 1300}}}}
	for _, n := range []string{"a", "b", "c"} {
		y.node(n, fleet.Local, 4, a100())
	}

	saved := want{gpus: 4, lasts: 20 * time.Hour, objective: job.ObjectiveCost, resumes: true, every: time.Hour}
	y.occupy("a", 90*time.Minute, saved) // half an hour since its last checkpoint
	least := y.occupy("b", 61*time.Minute, saved)
	y.occupy("c", 100*time.Minute, saved)
	it := y.submit(want{gpus: 4, lasts: time.Hour, objective: job.ObjectiveTime})

	p := y.plan(t)
	if len(p.Stops) != 1 || p.Stops[0].Running != least || !slices.Equal(where(p, it), []id.Node{"b"}) {
		t.Fatalf("the plan is %+v, want the job that saved itself a minute ago to go", p)
	}

	if !strings.Contains(p.Stops[0].Reason, string(it.Job)) {
		t.Errorf("the reason %q does not say for whom", p.Stops[0].Reason)
	}

	y = newYard()
	y.node("a", fleet.Local, 4, a100())
	small := saved
	small.gpus = 1
	y.occupy("a", 90*time.Minute, small)
	one := y.occupy("a", 61*time.Minute, small)
	y.occupy("a", 95*time.Minute, small)
	y.occupy("a", 100*time.Minute, small)
	y.submit(want{gpus: 1, lasts: time.Hour, objective: job.ObjectiveTime})

	if p := y.plan(t); len(p.Stops) != 1 || p.Stops[0].Running != one {
		t.Errorf("the plan is %+v, want one stop, of %s", p, one.Job)
	}
}

// TestTheCostAfterPreemptingIsThatOfTheNode: of the node on which the job starts, not of another with GPUs of the same
// kind that was compared with it.
func TestTheCostAfterPreemptingIsThatOfTheNode(t *testing.T) {
	t.Parallel()
	y := newYard(func(c *rules.Config) { c.Value[job.ObjectiveCost] = 1 }) // one victim is better than two
	y.tariff = &fleet.Tariff{Energy: 1, Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{8}}}}
	y.node("a", fleet.Local, 4, a100())
	y.node("b", fleet.Local, 2, a100())

	small := want{gpus: 1, lasts: 20 * time.Hour, objective: job.ObjectiveCost, resumes: true, every: time.Hour}
	for range 4 {
		y.occupy("a", 61*time.Minute, small)
	}

	wide := small
	wide.gpus = 2
	y.occupy("b", 62*time.Minute, wide) // loses more than each of the others, so that a is compared first

	it := y.submit(want{gpus: 2, lasts: time.Hour, objective: job.ObjectiveTime})
	p := y.plan(t)

	if !slices.Equal(where(p, it), []id.Node{"b"}) {
		t.Fatalf("the plan is %+v, want the job on b", p)
	}

	if reason := p.Starts[0].Reason; !strings.Contains(reason, "est. cost $8.00") {
		t.Errorf("the reason is %q, want the price of an hour of the whole of b", reason)
	}
}

// TestAVictimLeavesEnoughOfEverything: GPUs alone are not enough to start.
func TestAVictimLeavesEnoughOfEverything(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 4, a100())
	y.occupy("a", time.Hour, want{cpus: 30_000, lasts: 10 * time.Hour}) // leaves 2 of 32 CPUs
	y.occupy("a", time.Hour, want{gpus: 4, cpus: 1000, lasts: 10 * time.Hour, objective: job.ObjectiveCost, resumes: true})
	y.submit(want{gpus: 1, cpus: 8000, lasts: time.Hour, objective: job.ObjectiveTime})

	if p := y.plan(t); len(p.Stops) > 0 || len(p.Starts) > 0 {
		t.Errorf("the plan is %+v, want nothing to be stopped for nothing", p)
	}
}

// TestNobodyIsStoppedForLessThanItCosts: the time that the victim is later counts.
func TestNobodyIsStoppedForLessThanItCosts(t *testing.T) {
	t.Parallel()

	for _, value := range []money.PerHour{1, 1000} { // of an hour of the victim's time; that of the other is worth 50
		y := newYard(func(c *rules.Config) { c.Value[job.ObjectiveCost] = value })
		y.node("a", fleet.Local, 4, a100())
		y.occupy("a", time.Hour, want{gpus: 4, lasts: 3 * time.Hour, objective: job.ObjectiveCost, resumes: true})
		y.submit(want{gpus: 4, lasts: time.Hour, objective: job.ObjectiveTime})

		if p := y.plan(t); (len(p.Stops) == 1) != (value == 1) {
			t.Errorf("an hour of the victim is worth $%g and the plan is %+v", value, p)
		}
	}
}

func TestPreemptionCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	y := newYard(func(c *rules.Config) { c.Preempt = false })
	y.node("a", fleet.Local, 4, a100())
	y.occupy("a", time.Hour, want{gpus: 4, lasts: 10 * time.Hour, objective: job.ObjectiveCost, resumes: true})
	y.submit(want{gpus: 4, lasts: time.Hour, objective: job.ObjectiveTime})

	if p := y.plan(t); len(p.Stops) > 0 {
		t.Errorf("the plan is %+v, want no stop", p)
	}
}

// TestOptionsSayWhatWouldBeDone: what is shown first is what the plan does.
func TestOptionsSayWhatWouldBeDone(t *testing.T) {
	t.Parallel()

	for _, objective := range objectives() {
		y := newYard()
		y.node("a", fleet.Local, 4, t4())
		y.node("b", fleet.Local, 4, a100())
		y.offer("aws/h100", 4, h100(), 20, 3*time.Minute)
		it := y.submit(want{gpus: 4, lasts: 5 * time.Hour, objective: objective})

		adviser, ok := y.policy.(place.Adviser)
		if !ok {
			t.Fatal("the policy gives no advice")
		}

		list := adviser.Options(y.view(), it)

		p := y.plan(t)
		if len(list) < 2 || len(p.Starts)+len(p.Provisions) != 1 {
			t.Fatalf("%s: the plan is %+v and the options are %+v", objective, p, list)
		}

		first := list[0]
		if h := provisioned(p, it); h != nil && first.Offer != h.Offer ||
			h == nil && !slices.Equal(first.Nodes, where(p, it)) {
			t.Errorf("%s: the first option is %+v and the plan %+v", objective, first, p)
		}

		for _, o := range list {
			if o.What == "" || o.Verdict == "" || o.Basis == "" || o.Finish.Before(o.Start) || o.Latest.Before(o.Earliest) ||
				o.CostMost < o.Cost {
				t.Errorf("%s: an option that tells too little: %+v", objective, o)
			}
		}
	}
}

// TestOptionsOnNodesWithoutAPriceSaySo: $0.00 where no tariff is known reads as free (newcomer, missing list 16).
func TestOptionsOnNodesWithoutAPriceSaySo(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.node("a", fleet.Local, 4, a100())
	y.offer("aws/h100", 4, h100(), 20, 3*time.Minute)
	it := y.submit(want{gpus: 4, lasts: 5 * time.Hour})

	v := y.view()
	v.Tariff = nil

	for _, o := range y.policy.(place.Adviser).Options(v, it) {
		if o.Unpriced != (o.Offer == "") {
			t.Errorf("unpriced is %v of %+v", o.Unpriced, o)
		}
	}

	v.Tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{0}}}}
	for _, o := range y.policy.(place.Adviser).Options(v, it) {
		if o.Unpriced {
			t.Errorf("a price of nothing is a price: %+v", o)
		}
	}
}

// TestAnOfferOfSeveralNodesIsListedOnce: also for a job that could use one node of it or two, and one of which no
// more may be provisioned.
func TestAnOfferOfSeveralNodesIsListedOnce(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.node("a", fleet.Local, 4, a100())
	y.offer("aws/one", 1, a100(), 4, 3*time.Minute)
	y.offer("aws/two", 2, a100(), 8, 3*time.Minute)
	it := y.submit(want{gpus: 1, most: 2, mostNodes: 2, speed: job.NewSpeed(3600, 0, 0,
		job.Rate{GPUs: 1, PerSecond: 1}, job.Rate{GPUs: 2, PerSecond: 1.6})})

	v := y.view()
	used := slices.IndexFunc(v.Offers, func(o fleet.Offer) bool { return o.Name == "aws/one" })
	v.Exhausted = []fleet.Offer{v.Offers[used]}
	v.Exhausted[0].MaxNodes = 2
	v.Offers = slices.Delete(slices.Clone(v.Offers), used, used+1)

	listed := map[string]int{}
	for _, o := range y.policy.(place.Adviser).Options(v, it) {
		if o.Offer != "" {
			listed[o.Offer]++
		}
	}

	if len(listed) != 2 || listed["aws/one"] != 1 || listed["aws/two"] != 1 {
		t.Errorf("the offers are listed so often: %v", listed)
	}
}

func TestAForecastSaysHowLongAJobTakes(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 4, a100())
	it := y.submit(want{gpus: 4})

	// As the yard puts it in line once the forecast is there.
	it.Lasts = 2 * time.Hour
	it.Outlook.Forecast = &job.Forecast{
		At:        y.now,
		Basis:     job.BasisHistory,
		Remaining: job.Band{Low: 3600, Mid: 7200, High: 10800},
	}

	first := y.policy.(place.Adviser).Options(y.view(), it)[0]
	if first.Basis != "its forecast" || first.Earliest.Sub(first.Start) != time.Hour ||
		first.Latest.Sub(first.Start) != 3*time.Hour {
		t.Errorf(
			"the option goes by %q, from %v to %v after its start; want its forecast, 1h to 3h",
			first.Basis,
			first.Earliest.Sub(first.Start),
			first.Latest.Sub(first.Start),
		)
	}
}
