package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/rules"
	"trainyard/internal/queue"
	"trainyard/internal/share"
)

// seatOf returns what a plan gives a job, the zero value if it does not start.
func seatOf(p place.Plan, it *queue.Item) place.Allocation {
	for i := range p.Starts {
		if p.Starts[i].Item == it {
			return p.Starts[i].Allocations[0]
		}
	}

	return place.Allocation{}
}

func TestJobsShareAGPU(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 2, a100())

	half, more, whole := y.submit(want{gpus: 1, share: 0.5}), y.submit(want{gpus: 1, share: 0.4}), y.submit(want{gpus: 1})
	p := y.round(t)

	if len(p.Starts) != 3 || seatOf(p, half).GPUs != seatOf(p, more).GPUs || seatOf(p, whole).Share != 0 {
		t.Fatalf("two parts and a whole GPU are placed as %+v", p.Starts)
	}

	last := y.submit(want{gpus: 1, share: 0.1, user: "ben"})
	p = y.round(t)
	if seat := seatOf(p, last); seat.GPUs != seatOf(y.planOf(half), half).GPUs || seat.Share != 0.1 {
		t.Fatalf("the rest of the shared GPU goes to %+v", p.Starts)
	}

	reason := p.Starts[0].Reason
	for _, word := range []string{"shared", "10% of 1× A100", "beside j1 (ada, 50%) and j2 (ada, 40%)"} {
		if !strings.Contains(reason, word) {
			t.Errorf("the reason %q does not say %q", reason, word)
		}
	}
}

// planOf returns a plan with the seats that a job has.
func (y *yard) planOf(it *queue.Item) place.Plan {
	for _, r := range y.runs {
		if r.Item == it {
			return place.Plan{Starts: []place.Start{{Item: it, Allocations: r.Allocations}}}
		}
	}

	return place.Plan{}
}

func TestACutKeepsWhatIsLeftUseful(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		bestFit bool
		gpu     uint64
	}{
		// Most jobs here want 60 %, which is left of the first GPU; of the second 80 % is. Who wants 20 % gets it
		// there, so that one more of the others fits on either.
		"least fragments": {false, 2},
		"best fit":        {true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(func(c *rules.Config) { c.BestFit = tc.bestFit })
			y.node("a", fleet.Local, 2, a100())
			y.hold(y.taken(want{gpus: 1, share: 0.4}), []place.Allocation{{Node: "a", GPUs: 1, Share: 0.4}}, start)
			y.hold(y.taken(want{gpus: 1, share: 0.2}), []place.Allocation{{Node: "a", GPUs: 2, Share: 0.2}}, start)

			for range 8 { // they say what is asked for here, and cannot run here
				y.submit(want{gpus: 1, share: 0.6, kind: "H100"})
			}

			it := y.submit(want{gpus: 1, share: 0.2})
			if seat := seatOf(y.plan(t), it); seat.GPUs != tc.gpu {
				t.Errorf("it gets a part of GPU %b, want %b", seat.GPUs, tc.gpu)
			}
		})
	}
}

func TestJobsWithoutPartsKeepWhatIsLeftUseful(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		bestFit bool
		share   float64 // that most jobs here want
		node    id.Node
	}{
		// They want 8 CPUs beside it. The free GPU of a would be useless without its CPUs; of b's enough are left.
		"least fragments":          {false, 0.5, "b"},
		"best fit":                 {true, 0.5, "a"},
		"where nobody shares GPUs": {false, 0, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(func(c *rules.Config) { c.BestFit = tc.bestFit })
			y.node("a", fleet.Local, 2, a100())
			y.node("b", fleet.Local, 2, a100())
			y.hold(y.taken(want{gpus: 1, cpus: 2000}), []place.Allocation{{Node: "a", GPUs: 1}}, start)

			for range 8 {
				y.submit(want{gpus: 1, share: tc.share, cpus: 8000, kind: "H100"})
			}

			it := y.submit(want{cpus: 8000})
			if seat := seatOf(y.plan(t), it); seat.Node != tc.node {
				t.Errorf("it is placed on %q, want %q", seat.Node, tc.node)
			}
		})
	}
}

// taken is a job that is no longer queued.
func (y *yard) taken(w want) *queue.Item {
	it := y.submit(w)
	y.line.Remove(it)

	return it
}

func TestGuaranteedJobsLeaveNormalOnesTheirShares(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 1, a100())
	y.hold(y.taken(want{gpus: 1, share: 0.5, lasts: time.Hour}), []place.Allocation{{Node: "a", GPUs: 1, Share: 0.5}}, start)

	unbounded := y.submit(want{gpus: 1, share: 0.2, class: job.ShareGuaranteed})
	limited := y.submit(want{gpus: 1, share: 0.2, class: job.ShareGuaranteed, limit: 0.4})
	p := y.plan(t)

	if seatOf(p, unbounded).GPUs != 0 || seatOf(p, limited).GPUs != 1 {
		t.Errorf("beside a normal job a guaranteed one is placed at %+v, and with a limit at %+v",
			seatOf(p, unbounded), seatOf(p, limited))
	}
}

func TestMemoryCapsFit(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 1, a100())
	y.hold(y.taken(want{gpus: 1, share: 0.2, memory: 60 << 30, lasts: time.Hour}),
		[]place.Allocation{{Node: "a", GPUs: 1, Share: 0.2}}, start)

	large := y.submit(want{gpus: 1, share: 0.2, memory: 30 << 30})
	small := y.submit(want{gpus: 1, share: 0.2, memory: 19 << 30})
	if p := y.plan(t); seatOf(p, large).GPUs != 0 || seatOf(p, small).GPUs != 1 {
		t.Errorf("beside 60 of 80 GiB, 30 are placed at %+v and 19 at %+v", seatOf(p, large), seatOf(p, small))
	}
}

func TestAPairThatDoesBadlyIsParted(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 2, a100())
	y.hold(y.taken(want{gpus: 1, share: 0.5, program: "llm"}), []place.Allocation{{Node: "a", GPUs: 1, Share: 0.5}}, start)
	it := y.submit(want{gpus: 1, share: 0.5, program: "resnet", lasts: time.Hour})

	if seat := seatOf(y.plan(t), it); seat.GPUs != 1 {
		t.Fatalf("with nothing known it is placed at %+v", seat)
	}

	y.beside = share.NewInterference()
	for range 10 {
		y.beside.Observe(start, "resnet", "llm", 0.3)
	}

	if seat := seatOf(y.plan(t), it); seat.GPUs != 2 {
		t.Errorf("beside a job that slows it down it is placed at %+v", seat)
	}

	y.submit(want{gpus: 1, prio: 90})
	if seat := seatOf(y.plan(t), it); seat.GPUs != 0 {
		t.Errorf("rather than to wait it is placed at %+v", seat)
	}
}

// Who is kept apart from the only neighbour waits and learns why; jobs that ask for the same and may stand there do not
// wait behind it.
func TestWhoIsKeptApartKeepsNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 1, a100())
	y.hold(y.taken(want{gpus: 1, share: 0.5, program: "llm", lasts: 9 * time.Hour}),
		[]place.Allocation{{Node: "a", GPUs: 1, Share: 0.5}}, start)

	y.beside = share.NewInterference()
	for range 10 {
		y.beside.Observe(start, "resnet", "llm", 0.3)
	}

	kept := y.submit(want{gpus: 1, share: 0.5, program: "resnet", lasts: time.Hour})
	other := y.submit(want{gpus: 1, share: 0.5, program: "gnn", lasts: time.Hour})

	p := y.plan(t)
	if seatOf(p, kept).GPUs != 0 || seatOf(p, other).GPUs != 1 {
		t.Errorf("the one is placed at %+v, the other at %+v", seatOf(p, kept), seatOf(p, other))
	}

	if len(p.Waits) != 1 || p.Waits[0].Job != kept.Job || !strings.Contains(p.Waits[0].Reason, "kept apart from j1 (ada, 50%)") {
		t.Errorf("the plan says %+v", p.Waits)
	}
}

// Two that stand together and do badly are parted as soon as there is another GPU: the one with the smaller share
// leaves.
func TestRunningJobsThatDoBadlyAreParted(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 2, a100())
	y.hold(y.taken(want{gpus: 1, share: 0.5, program: "llm", resumes: true, lasts: 20 * time.Hour}),
		[]place.Allocation{{Node: "a", GPUs: 1, Share: 0.5}}, start)
	small := y.hold(y.taken(want{gpus: 1, share: 0.3, program: "resnet", resumes: true, lasts: 20 * time.Hour}),
		[]place.Allocation{{Node: "a", GPUs: 1, Share: 0.3}}, start)
	y.hold(y.taken(want{gpus: 1, lasts: 2 * time.Hour}), []place.Allocation{{Node: "a", GPUs: 2}}, start)

	y.beside = share.NewInterference()
	for range 10 {
		y.beside.Observe(start, "resnet", "llm", 0.3)
	}

	y.now = start.Add(time.Hour)
	if p := y.plan(t); len(p.Stops) > 0 {
		t.Fatalf("with no other GPU free, %+v", p.Stops)
	}

	y.pass(2 * time.Hour) // the third has ended

	p := y.plan(t)
	if len(p.Stops) != 1 || p.Stops[0].Running != small || seatOf(p, small.Item).GPUs != 2 {
		t.Fatalf("stops %+v, starts %+v", p.Stops, p.Starts)
	}
	if reason := p.Stops[0].Reason; !strings.Contains(reason, "moved away from j1 (ada, 50%)") {
		t.Errorf("the reason is %q", reason)
	}

	y.round(t)
	if p := y.plan(t); len(p.Stops)+len(p.Starts) > 0 {
		t.Errorf("once they are parted: %+v, %+v", p.Stops, p.Starts)
	}
}

// A job that is slowed down by its neighbour is expected to take longer.
func TestInterferenceMakesRunsLonger(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 1, a100())
	y.hold(y.taken(want{gpus: 1, share: 0.5, program: "llm", lasts: 9 * time.Hour}),
		[]place.Allocation{{Node: "a", GPUs: 1, Share: 0.5}}, start)
	it := y.submit(want{gpus: 1, share: 0.5, program: "resnet", lasts: time.Hour})
	finish := func() time.Time { return y.policy.(place.Adviser).Options(y.view(), it)[0].Finish }

	before := finish()
	y.beside = share.NewInterference()
	for range 100 {
		y.beside.Observe(start, "resnet", "llm", 0.8)
	}

	if later := finish().Sub(before); later < 10*time.Minute || later > 20*time.Minute {
		t.Errorf("an hour at four fifths of the speed ends %s later", later)
	}
}

// A part of a GPU is not given to a job that would delay one for which the node is reserved.
func TestAPartDelaysNoReservation(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 2, a100())
	y.hold(y.taken(want{gpus: 1, share: 0.5, lasts: time.Hour}), []place.Allocation{{Node: "a", GPUs: 1, Share: 0.5}}, start)
	y.submit(want{gpus: 2, prio: 90, lasts: time.Hour}) // gets both GPUs in an hour

	long := y.submit(want{gpus: 1, share: 0.2, lasts: 3 * time.Hour})
	short := y.submit(want{gpus: 1, share: 0.2, lasts: time.Hour})
	p := y.plan(t)

	if seatOf(p, long).GPUs != 0 || seatOf(p, short).GPUs == 0 {
		t.Errorf("the reservation in an hour is kept by a job of 3 hours at %+v and one of an hour at %+v",
			seatOf(p, long), seatOf(p, short))
	}
}

// Queued jobs that will share a GPU reserve one for all, as far as all of them fit on it.
func TestQueuedPartsReserveOneGPU(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		jobs []want // of jobs that ask for the same only one has a GPU kept
		in   []time.Duration
	}{
		"shares": {
			[]want{{share: 0.5}, {share: 0.4}, {share: 0.3}},
			[]time.Duration{time.Hour, time.Hour, 2 * time.Hour},
		},
		"memory of 80 GB": {
			[]want{{share: 0.2, memory: 50 << 30}, {share: 0.1, memory: 40 << 30}, {share: 0.3, memory: 20 << 30}},
			[]time.Duration{time.Hour, 2 * time.Hour, time.Hour},
		},
		"a guaranteed job without a limit": {
			[]want{{share: 0.2}, {share: 0.2, class: job.ShareGuaranteed}},
			[]time.Duration{time.Hour, 2 * time.Hour},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			y.node("a", fleet.Local, 2, a100())
			y.occupy("a", 0, want{gpus: 1, lasts: time.Hour})
			y.occupy("a", 0, want{gpus: 1, lasts: 2 * time.Hour})

			for _, w := range tc.jobs {
				w.gpus, w.lasts = 1, time.Hour
				y.submit(w)
			}

			var in []time.Duration
			for _, b := range y.plan(t).Bookings {
				in = append(in, b.StartsIn)
			}

			if !slices.Equal(in, tc.in) {
				t.Errorf("they are to start in %v, want %v", in, tc.in)
			}
		})
	}
}

// TestPartsAreProvisioned: for jobs that want a part of a GPU one node is provisioned, not one for each; they start
// there together, whoever it was for first.
func TestPartsAreProvisioned(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.offer("a100", 1, a100(), 3, 3*time.Minute)
	y.offer("a100x8", 8, a100(), 24, 3*time.Minute)

	half := func(more want) want {
		more.gpus, more.share, more.lasts, more.objective = 1, 0.5, 10*time.Hour, job.ObjectiveTime

		return more
	}

	first := y.submit(half(want{}))
	p := y.round(t)

	h := provisioned(p, first)
	if h == nil || h.Offer != "a100" || h.Count != 1 || !strings.Contains(h.Reason, "no node of the yard can run it") {
		t.Fatalf("the plan is %+v, want a node with one GPU", p)
	}

	second := y.submit(half(want{user: "ben"}))
	third := y.submit(half(want{user: "cy"}))
	large := y.submit(half(want{memory: 60 << 30}))

	p = y.round(t)
	if provisioned(p, second) != nil || provisioned(p, third) == nil || provisioned(p, large) == nil {
		t.Fatalf("beside the first there is room for one more half, and %+v are provisioned", p.Provisions)
	}

	if len(p.Waits) != 1 || p.Waits[0].Job != second.Job || !strings.Contains(p.Waits[0].Reason, "node that is being provisioned for j1") {
		t.Errorf("the plan says %+v", p.Waits)
	}

	for range 3 {
		if p = y.round(t); len(p.Provisions) > 0 {
			t.Fatalf("more is provisioned: %+v", p.Provisions)
		}

		y.pass(time.Minute)
	}

	y.round(t) // the nodes are there, and each job starts on its own
	y.pass(time.Second)
	y.round(t)

	a, b := seatOf(y.planOf(first), first), seatOf(y.planOf(second), second)
	if a.Node == "" || a.Node != b.Node || a.Share != 0.5 || b.Share != 0.5 {
		t.Errorf("the first is on %+v, the second on %+v", a, b)
	}
}

func TestPartsAreNotProvisionedWhereNodesDoNotDivideTheirGPUs(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.offer("a100", 1, a100(), 3, 3*time.Minute).Shares = ""
	y.submit(want{gpus: 1, share: 0.5, lasts: time.Hour, objective: job.ObjectiveTime})

	if p := y.plan(t); len(p.Provisions) > 0 {
		t.Errorf("%+v is provisioned", p.Provisions)
	}
}
