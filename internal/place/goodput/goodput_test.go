package goodput_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/goodput"
)

// counts leaves out the models.
func counts(m map[id.Job]has) map[id.Job]int {
	out := map[id.Job]int{}
	for j, h := range m {
		out[j] = h.gpus
	}

	return out
}

func TestWhoHasHowMany(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		yard func() *yard
		want map[id.Job]int
	}{
		"a job that is alone has all that make it faster": {func() *yard {
			y := newYard()
			y.node("a", "V100", 8)
			y.waits(elastic(), scales(1e4, 0.8, 6, 0))

			return y
		}, map[id.Job]int{"j1": 6}},
		"jobs that are alike share alike": {func() *yard {
			y := newYard()
			y.node("a", "V100", 8)
			y.waits(elastic(), scales(1e4, 0.7, 8, 0))
			y.waits(elastic(), scales(1e4, 0.7, 8, 0))

			return y
		}, map[id.Job]int{"j1": 4, "j2": 4}},
		// The optimum for speed-up with power ½ and two jobs gives the smaller 3/4.
		"a smaller job has more": {func() *yard {
			y := newYard()
			y.node("a", "V100", 8)
			y.waits(elastic(), scales(1e5, 0.5, 8, 0))
			y.waits(elastic(), scales(1e3, 0.5, 8, 0))

			return y
		}, map[id.Job]int{"j1": 2, "j2": 6}},
		"a job that makes poor use of more has fewer": {func() *yard {
			y := newYard()
			y.node("a", "V100", 8)
			y.waits(elastic(), scales(1e4, 0.2, 8, 0))
			y.waits(elastic(), scales(1e4, 0.9, 8, 0))

			return y
		}, map[id.Job]int{"j1": 1, "j2": 7}},
		"with more jobs than GPUs the shortest run": {func() *yard {
			y := newYard()
			y.node("a", "V100", 2)

			for _, work := range []float64{4e4, 1e3, 3e4, 2e3, 5e4} {
				y.waits(exactly(1), scales(work, 1, 1, 0))
			}

			return y
		}, map[id.Job]int{"j2": 1, "j4": 1}},
		"a wide job is as large as the GPUs it keeps busy": {func() *yard {
			y := newYard()
			y.node("a", "V100", 4)
			y.waits(exactly(4), scales(1e3, 0, 4, 0)) // a quarter of an hour of four

			for range 4 {
				y.waits(exactly(1), scales(2e3, 0, 1, 0)) // half an hour of one
			}

			return y
		}, map[id.Job]int{"j2": 1, "j3": 1, "j4": 1, "j5": 1}},
		"a job of a higher priority goes before one that is somewhat shorter": {func() *yard {
			y := newYard()
			y.node("a", "V100", 1)
			y.waits(exactly(1), scales(1e3, 1, 1, 0))
			y.ranks(50, exactly(1), scales(3e3, 1, 1, 0))

			return y
		}, map[id.Job]int{"j2": 1}},
		"a job that says nothing of its speed has what it asks for": {func() *yard {
			y := newYard()
			y.node("a", "V100", 8)
			y.waits(exactly(3), nil)
			y.waits(elastic(), scales(1e3, 1, 8, 0))

			return y
		}, map[id.Job]int{"j1": 3, "j2": 5}},
		"of jobs that say nothing the one that has had least goes on": {func() *yard {
			y := newYard()
			y.node("a", "V100", 1)
			y.runs(y.waits(exactly(1), nil), "a", 1, 2*time.Hour)
			y.waits(exactly(1), nil)

			return y
		}, map[id.Job]int{"j2": 1}},
		"a job that is nearly done stays, though a new one is expected to be shorter": {func() *yard {
			y := newYard()
			y.node("a", "V100", 1)
			it := y.waits(exactly(1), nil)
			it.Lasts = 2 * time.Hour
			y.runs(it, "a", 1, 2*time.Hour-time.Minute)
			y.waits(exactly(1), nil).Lasts = time.Hour

			return y
		}, map[id.Job]int{"j1": 1}},
		"a job that runs is not stopped for one that is little shorter": {func() *yard {
			y := newYard()
			y.node("a", "V100", 1)
			y.runs(y.waits(exactly(1), scales(1800, 1, 1, time.Minute)), "a", 1, 13*time.Minute) // 18 min are left
			y.waits(exactly(1), scales(960, 1, 1, time.Minute))                                  // with its start 17 min

			return y
		}, map[id.Job]int{"j1": 1}},
		"a job that runs is stopped for one that is far shorter": {func() *yard {
			y := newYard()
			y.node("a", "V100", 1)
			y.runs(y.waits(exactly(1), scales(1e5, 1, 1, time.Minute)), "a", 1, 13*time.Minute)
			y.waits(exactly(1), scales(300, 1, 1, time.Minute))

			return y
		}, map[id.Job]int{"j2": 1}},
		"a job that is done before more GPUs have started does not have them": {func() *yard {
			y := newYard()
			y.node("a", "V100", 8)
			y.waits(elastic(), scales(10, 1, 8, 5*time.Minute))
			y.waits(elastic(), scales(1e5, 1, 8, 5*time.Minute))

			return y
		}, map[id.Job]int{"j1": 1, "j2": 7}},
		"a job beyond one node takes whole nodes": {func() *yard {
			y := newYard()
			for _, n := range []string{"a", "b", "c"} {
				y.node(n, "V100", 4)
			}

			y.waits(elastic(), scales(1e5, 0.9, 16, 0))
			y.waits(exactly(1), scales(1e2, 0, 1, 0))

			return y
		}, map[id.Job]int{"j1": 8, "j2": 1}},
		"a job that asks for no GPU starts too": {func() *yard {
			y := newYard()
			y.node("a", "V100", 2)
			y.waits(job.Resources{CPUs: 1000}, nil)
			y.waits(exactly(2), nil)

			return y
		}, map[id.Job]int{"j1": 0, "j2": 2}},
		"a job with more work than anybody and no room for it waits": {func() *yard {
			y := newYard()
			y.node("a", "V100", 2)
			y.waits(exactly(4), scales(1e4, 1, 4, 0))

			return y
		}, map[id.Job]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := tc.yard().after(t, goodput.Policy{})
			if diff := cmp.Diff(tc.want, counts(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEachJobGoesWhereItGainsMost(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("k", "K80", 1)
	y.node("v", "V100", 1)

	// Both are faster on the V100, but the second by far more.
	y.waits(
		exactly(1),
		job.NewSpeed(1e4, 0, 0, job.Rate{GPU: "K80", GPUs: 1, PerSecond: 9}, job.Rate{GPU: "V100", GPUs: 1, PerSecond: 10}),
	)

	y.waits(
		exactly(1),
		job.NewSpeed(1e4, 0, 0, job.Rate{GPU: "K80", GPUs: 1, PerSecond: 2}, job.Rate{GPU: "V100", GPUs: 1, PerSecond: 10}),
	)

	got, _ := y.after(t, goodput.Policy{})
	if want := map[id.Job]has{"j1": {1, "K80"}, "j2": {1, "V100"}}; !cmp.Equal(got, want, cmp.AllowUnexported(has{})) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestAChangeMustPay lets a job run on two GPUs of which it could have four: twice
// as fast, for a pause of a minute.
func TestAChangeMustPay(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		work  float64 // that is left
		power float64
		since time.Duration
		want  int
	}{
		"much is left, and it is twice as fast":   {4000, 1, 10 * time.Minute, 4},
		"much is left, and it is little faster":   {4000, 0.1, 10 * time.Minute, 2},
		"it is done before the change would help": {100, 1, 10 * time.Minute, 2},
		"it has just begun":                       {4000, 1, 2 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			y.node("a", "V100", 4)
			it := y.waits(elastic(), nil)
			s := scales(1, tc.power, 4, time.Minute)
			it.Outlook.Speed = s
			r := y.runs(it, "a", 2, tc.since)
			s.Work = tc.work + r.Rate*max(tc.since.Seconds()-60, 0)

			got, plan := y.after(t, goodput.Policy{})
			if got["j1"].gpus != tc.want {
				t.Errorf("it has %d GPUs, want %d: %+v", got["j1"].gpus, tc.want, plan)
			}
		})
	}
}

func TestWhatCannotGoOnIsLeftAlone(t *testing.T) {
	t.Parallel()

	for name, spoil := range map[string]func(*yard, *place.Running){
		"it saves nothing":    func(_ *yard, r *place.Running) { r.Outlook.Resumes = false },
		"it is being stopped": func(_ *yard, r *place.Running) { r.Stopping = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			y.node("a", "V100", 4)
			r := y.runs(y.waits(exactly(4), scales(1e6, 0, 4, 0)), "a", 4, time.Hour)

			for range 20 {
				y.waits(exactly(1), scales(60, 1, 1, 0))
			}

			if _, plan := y.after(t, goodput.Policy{}); len(plan.Stops) == 0 {
				t.Fatal("it is not stopped even where it may be")
			}

			spoil(y, r)

			if got, _ := y.after(t, goodput.Policy{}); len(got) != 1 || got["j1"].gpus != 4 {
				t.Errorf("got %v, want only j1 on its 4 GPUs", got)
			}
		})
	}
}

// TestAJobOnAClosedNodeTakesNothingFromOthers lets one run where nothing new may
// go: it stays, and what is open is for the others.
func TestAJobOnAClosedNodeTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", "V100", 4)
	y.node("b", "V100", 4)
	y.runs(y.waits(elastic(), scales(1e6, 0.9, 8, time.Minute)), "a", 4, time.Hour)
	y.drain("a")
	y.waits(elastic(), scales(1e4, 0.9, 8, time.Minute))

	got, plan := y.after(t, goodput.Policy{})
	if want := map[id.Job]int{"j1": 4, "j2": 4}; !cmp.Equal(counts(got), want) || len(plan.Stops) > 0 {
		t.Errorf("got %v with %d stops, want %v and none", got, len(plan.Stops), want)
	}
}

// TestAStopIsPaidForToo lets ten jobs run and another wait that is shorter than
// the longest of them, or than all.
func TestAStopIsPaidForToo(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		work float64
		stop int
	}{
		"little shorter than the longest": {9e5, 0},
		"shorter than all":                {100, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			y.node("a", "V100", 10)

			work := 1e4
			for range 10 {
				y.runs(y.waits(exactly(1), scales(work, 1, 1, time.Minute)), "a", 1, 10*time.Minute)
				work *= 1.7
			}

			y.waits(exactly(1), scales(tc.work, 1, 1, time.Minute))

			if _, plan := y.after(t, goodput.Policy{}); len(plan.Stops) != tc.stop {
				t.Errorf("%d jobs are stopped, want %d", len(plan.Stops), tc.stop)
			}
		})
	}
}

// TestAMoveIsPaidForToo lets two nodes be half in use while a job of a whole node
// waits: in counts there is room for it, on the nodes somebody has to move.
func TestAMoveIsPaidForToo(t *testing.T) {
	t.Parallel()

	for priority, moves := range map[int]int{0: 1, 100: 0} {
		y := newYard()
		for _, n := range []id.Node{"a", "b"} {
			y.node(string(n), "V100", 2)
			y.runs(y.ranks(priority, exactly(1), scales(1e5, 1, 1, time.Minute)), n, 1, time.Hour)
		}

		y.waits(exactly(2), scales(1e5, 0, 2, time.Minute))

		got, plan := y.after(t, goodput.Policy{})
		if len(plan.Stops) != moves || got["j3"].gpus != 2*moves {
			t.Errorf(
				"with priority %d %d jobs move and the one that waits has %d GPUs, want %d and %d",
				priority,
				len(plan.Stops),
				got["j3"].gpus,
				moves,
				2*moves,
			)
		}
	}
}

func (y *yard) drain(name id.Node) {
	room, _ := y.table.Get(name)
	n := *room.Node
	n.Cordoned = true
	y.table.Put(&n, 0)
}

// TestALargeJobIsNotPutOffForEver lets a large job wait beside small ones that keep
// coming.
func TestALargeJobIsNotPutOffForEver(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", "V100", 1)
	large := y.waits(exactly(1), scales(3600, 1, 1, 0))
	y.waits(exactly(1), scales(900, 1, 1, 0))

	if got, _ := y.after(t, goodput.Policy{}); got["j2"].gpus != 1 {
		t.Fatalf("got %v, want the small one first", got)
	}

	large.Outlook.Submitted = start.Add(-100 * time.Hour)

	if got, _ := y.after(t, goodput.Policy{}); got["j1"].gpus != 1 {
		t.Errorf("got %v, want the large one at last", got)
	}
}

func TestTheLastEndCounts(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("k", "K80", 1)
	y.node("v", "V100", 1)

	// The long one takes 10,000 s on the V100 and ends last whatever else happens.
	for _, work := range []float64{1e3, 1e3, 1e4} {
		y.waits(
			exactly(1),
			job.NewSpeed(
				work,
				0,
				0,
				job.Rate{GPU: "K80", GPUs: 1, PerSecond: 0.5},
				job.Rate{GPU: "V100", GPUs: 1, PerSecond: 1},
			),
		)
	}

	got, _ := y.after(t, goodput.Policy{Aim: goodput.Makespan})
	if got["j3"] != (has{1, "V100"}) || len(got) != 2 {
		t.Errorf("got %v, want the long one on the V100 and a short one on the K80", got)
	}

	got, _ = y.after(t, goodput.Policy{})
	if got["j3"].gpus != 0 {
		t.Errorf("got %v, want the short ones first where the mean counts", got)
	}
}

func TestItAsksAgainOnlyWhileSomethingIsWanting(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", "V100", 4)
	y.runs(y.waits(elastic(), scales(1e6, 1, 4, time.Minute)), "a", 4, time.Hour)

	if _, plan := y.after(t, goodput.Policy{}); !plan.WakeAt.IsZero() {
		t.Errorf("everybody has all there is, and it asks again at %v", plan.WakeAt)
	}

	y.waits(exactly(4), scales(1e7, 0, 4, time.Minute)).Outlook.Submitted = start.Add(-time.Hour)

	if _, plan := y.after(t, goodput.Policy{}); !plan.WakeAt.Equal(start.Add(30 * time.Minute)) {
		t.Errorf("it asks again at %v, want half an hour after an hour without a change", plan.WakeAt)
	}
}

func TestReasonsSayWhatAJobGetsAndWhatThatBrings(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", "V100", 8)
	y.runs(y.waits(exactly(4), scales(1e6, 0, 4, time.Minute)), "a", 4, time.Hour)
	y.runs(y.waits(elastic(), scales(8000, 1, 8, time.Minute)), "a", 2, time.Hour)

	for range 2 {
		y.waits(exactly(2), scales(1000, 0, 2, time.Minute))
	}

	_, plan := y.after(t, goodput.Policy{})

	reasons := map[id.Job]string{}
	for _, s := range plan.Stops {
		reasons[s.Running.Job] = s.Reason
	}

	for _, s := range plan.Starts {
		reasons[s.Item.Job] = s.Reason
	}

	want := map[id.Job]string{
		"j1": "preempted: released GPUs go to j3 and j4 in the choice with the shortest mean completion time found",
		"j2": "resized from 2× V100 16GB to 4× V100 16GB: est. finish in 4m50s instead of 7m40s",
		"j3": "2× V100 16GB, est. finish in 17m40s",
		"j4": "2× V100 16GB, est. finish in 17m40s",
	}

	if diff := cmp.Diff(want, reasons); diff != "" {
		t.Error(diff)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()

	for p, want := range map[goodput.Policy]string{{}: "goodput", {Aim: goodput.Makespan}: "goodput-makespan", {Aim: goodput.Fairness}: "goodput-fair"} {
		if p.Name() != want || !p.Revises() || strings.ContainsAny(want, " _") {
			t.Errorf("%+v is called %q", p, p.Name())
		}
	}

	if plan := (goodput.Policy{}).Plan(newYard().view()); len(plan.Starts)+len(plan.Stops) > 0 || !plan.WakeAt.IsZero() {
		t.Errorf("an empty yard has the plan %+v", plan)
	}
}
