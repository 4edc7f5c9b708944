package baseline_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/baseline"
	"trainyard/internal/place/ordered"
	"trainyard/internal/queue"
)

// stoppedBy names the jobs that a plan stops.
func stoppedBy(p place.Plan) []id.Job {
	var jobs []id.Job
	for _, s := range p.Stops {
		jobs = append(jobs, s.Running.Job)
	}

	return jobs
}

// TestWhoRuns has a job that runs alone on a node of two GPUs, which another one wants.
func TestWhoRuns(t *testing.T) {
	t.Parallel()
	h, m := time.Hour, time.Minute
	for name, tc := range map[string]struct {
		policy        string
		runs, comes   want
		after         time.Duration // that the second comes
		stops, starts []id.Job
	}{
		"srtf: a shorter one goes first":            {"srtf", lasting(h, 2), lasting(10*m, 2), 10 * m, []id.Job{"j1"}, []id.Job{"j2"}},
		"srtf: what is left counts":                 {"srtf", lasting(h, 2), lasting(10*m, 2), 55 * m, nil, nil},
		"srtf: unknown is longest":                  {"srtf", lasting(h, 2), lasting(0, 2), 10 * m, nil, nil},
		"srtf: there is room for both":              {"srtf", lasting(h, 1), lasting(10*m, 1), 10 * m, nil, []id.Job{"j2"}},
		"srtf: who saves nothing stays":             {"srtf", want{lasts: h, spec: gpus(2), stuck: true}, lasting(10*m, 2), 10 * m, nil, nil},
		"srsf: time × GPUs counts":                  {"srsf", lasting(20*m, 1), lasting(15*m, 2), 0, nil, nil},
		"las: who has had less goes first":          {"las", lasting(9*h, 2), lasting(0, 2), 30 * m, []id.Job{"j1"}, []id.Job{"j2"}},
		"las: within a queue who runs stays":        {"las", lasting(9*h, 2), lasting(0, 2), 20 * m, nil, nil},
		"fairshare: between users":                  {"fairshare", lasting(9*h, 2), want{user: "bob", spec: gpus(2)}, h, nil, nil},
		"sjf never stops":                           {"sjf", lasting(h, 2), lasting(10*m, 2), 10 * m, nil, nil},
		"tiresias: who has had an hour falls back":  {"tiresias", lasting(9*h, 2), lasting(0, 2), 31 * m, []id.Job{"j1"}, []id.Job{"j2"}},
		"tiresias: who has not stays":               {"tiresias", lasting(9*h, 2), lasting(0, 2), 29 * m, nil, nil},
		"elastic-srjf: a shorter one is served":     {"elastic-srjf", lasting(h, 2), lasting(10*m, 2), 10 * m, []id.Job{"j1"}, []id.Job{"j2"}},
		"elastic-fifo: by submission":               {"elastic-fifo", lasting(h, 2), lasting(10*m, 2), 10 * m, nil, nil},
		"conservative never stops":                  {"conservative", lasting(h, 2), lasting(10*m, 2), 10 * m, nil, nil},
		"edl never stops one that is not elastic":   {"edl", lasting(h, 2), lasting(10*m, 2), 10 * m, nil, nil},
		"afs-l: the shorter of two that have none":  {"afs-l", lasting(h, 2), lasting(10*m, 2), 10 * m, []id.Job{"j1"}, []id.Job{"j2"}},
		"ffdl: the first in line that fit together": {"ffdl", lasting(h, 2), lasting(10*m, 2), 10 * m, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.box("a", 2)
			w := newWorld(c, policy(tc.policy))
			c.add(tc.runs)
			w.round(t)

			if len(c.runs) != 1 {
				t.Fatalf("%d jobs run", len(c.runs))
			}

			c.now = c.now.Add(tc.after)
			c.add(tc.comes)

			p := w.policy.Plan(w.view())
			if diff := cmp.Diff(tc.stops, stoppedBy(p)); diff != "" {
				t.Error("stopped:", diff)
			}

			if diff := cmp.Diff(tc.starts, started(p)); diff != "" {
				t.Error("started:", diff)
			}
		})
	}
}

// TestPreemptionStopsNoMoreThanItMust has three nodes; the one that comes takes
// the place of the last in order, and leaves alone who need not go.
func TestPreemptionStopsNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.box("a", 2)
	c.box("b", 2)
	c.box("c", 2)
	w := newWorld(c, policy("srtf"))

	for _, d := range []time.Duration{4, 3, 6, 5, 2} { // by what is left: j5 and j2 on a, j1 and j4 on b, j3 on c
		c.add(lasting(d*time.Hour, 1))
	}

	w.round(t)

	if len(c.runs) != 5 {
		t.Fatalf("%d jobs run", len(c.runs))
	}

	c.items["j3"].Outlook.Resumes = false
	c.add(lasting(time.Hour, 2)) // wants two of one node: those on b have more left than those on a

	p := w.round(t)
	if diff := cmp.Diff([]id.Job{"j1", "j4"}, stoppedBy(p)); diff != "" {
		t.Fatal("stopped:", diff)
	}

	// One of them goes to the GPU that is free on c; the other, which has more left, waits.
	if diff := cmp.Diff([]id.Job{"j6", "j1"}, started(p)); diff != "" {
		t.Error("started:", diff)
	}

	if diff := cmp.Diff([]id.Node{"c"}, where(p, "j1")); diff != "" {
		t.Error(diff)
	}

	got := []string{p.Stops[0].Reason, p.Stops[1].Reason}
	if want := []string{
		"moved to make room for j6, which has less time remaining",
		"preempted for j6, which has less time remaining",
	}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("j1 and j4 are stopped because each %q, want %q", got, want)
	}
}

func TestLeastAttainedServiceTakesTurnsAtItsThresholds(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.box("a", 1)
	w := newWorld(c, policy("las"))

	for range 3 {
		c.add(lasting(2*time.Hour, 1))
	}

	var ends []time.Duration
	w.live(t)

	for _, j := range []id.Job{"j1", "j2", "j3"} {
		ends = append(ends, w.ended[j].Sub(start).Round(time.Second))
	}

	// Each runs 3,250 s. Then the one that runs stays until it is done, and the others follow.
	want := []time.Duration{(3*3250 + 2*3950) * time.Second, 3 * 7200 * time.Second, (3*3250 + 3950) * time.Second}
	if !slices.Equal(ends, want) {
		t.Errorf("they end after %v, want %v", ends, want)
	}

	if w.stops != 2 {
		t.Errorf("%d stops, want 2: the first two at their first threshold", w.stops)
	}
}

// TestFairShareGivesUsersEqualParts fills the yard with ada's jobs; bob's come later.
func TestFairShareGivesUsersEqualParts(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.box("a", 4)
	w := newWorld(c, policy("fairshare"))

	for range 6 {
		c.add(want{user: "ada", lasts: time.Hour, spec: gpus(1)})
	}

	w.round(t)

	c.now = c.now.Add(time.Minute)
	for range 3 {
		c.add(want{user: "bob", lasts: time.Hour, spec: gpus(1)})
	}

	p := w.round(t)
	if diff := cmp.Diff([]id.Job{"j3", "j4"}, stoppedBy(p)); diff != "" {
		t.Error("stopped:", diff)
	}

	if diff := cmp.Diff([]id.Job{"j7", "j8"}, started(p)); diff != "" {
		t.Error("started:", diff)
	}

	if p := w.round(t); len(p.Stops)+len(p.Starts) > 0 {
		t.Errorf("and then it changes its mind: %+v", p)
	}

	c.add(want{user: "eve", lasts: time.Hour, spec: gpus(8)}) // fits nowhere, and is not held against eve
	c.add(want{user: "eve", lasts: time.Hour, spec: gpus(1)})

	if diff := cmp.Diff([]id.Job{"j11"}, started(w.round(t))); diff != "" {
		t.Error("started:", diff)
	}
}

// drawWorld draws a yard in which some jobs run and some wait, under a policy.
func drawWorld(t *rapid.T, p place.Policy) *world {
	c := drawCluster(t)
	w := newWorld(c, p)

	draw := func(n int) {
		for range n {
			j := drawWant(t, rapid.IntRange(0, 3).Draw(t, "exact") > 0)
			j.user = rapid.SampledFrom([]id.User{"ada", "bob"}).Draw(t, "user")
			j.prio = rapid.SampledFrom([]int{0, 0, 50}).Draw(t, "priority")
			j.stuck = rapid.IntRange(0, 4).Draw(t, "stuck") == 0
			if rapid.IntRange(0, 2).Draw(t, "elastic") == 0 && j.spec.GPUs.Max > 0 {
				j.spec.GPUs, j.spec.Nodes = job.Range{Min: 1, Max: 4}, job.Range{Min: 1, Max: 3}
				j.speed = curve(1000, 1, 1.8, 2.4, 2.8, 3, 3.1)
			}

			c.add(j)
		}
	}

	draw(rapid.IntRange(0, 6).Draw(t, "first"))
	w.round(t)

	c.now = c.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes")) * time.Minute)
	for _, r := range c.runs {
		r.Stopping = rapid.IntRange(0, 9).Draw(t, "stopping") == 0
	}

	draw(rapid.IntRange(1, 8).Draw(t, "then"))

	return w
}

// TestEveryPlanCanBeCarriedOut looks at plans of every policy over yards of all kinds.
func TestEveryPlanCanBeCarriedOut(t *testing.T) {
	t.Parallel()

	for _, e := range baseline.Policies() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t, policy(e.Name))
				v := w.view()
				before := slices.Clone(v.Rooms)

				p := policy(e.Name).Plan(v)
				if again := policy(e.Name).Plan(v); !cmp.Equal(p, again, comparable) {
					t.Fatalf("same view, another plan: %s", cmp.Diff(p, again, comparable))
				}

				if !cmp.Equal(before, v.Rooms) {
					t.Fatal("the plan changed its view")
				}

				if len(p.Stops) > 0 && !policy(e.Name).Revises() {
					t.Fatal("it stops jobs and says that it does not")
				}

				if !p.WakeAt.IsZero() && !p.WakeAt.After(v.Now) {
					t.Fatalf("it wants to be asked again at %s, and now is %s", p.WakeAt, v.Now)
				}

				// A plan takes what it has just started for settled, and the next one does
				// not. So a second may make better use of the same; but it must come to rest.
				for range 6 {
					p = w.round(t) // passes the check
				}

				if len(p.Stops) > 0 {
					t.Fatalf("asked for the sixth time at once it stops %v", stoppedBy(p))
				}
			})
		})
	}
}

// TestEverythingEndsThatCan lets yards live until nothing happens any more: no
// policy starves a job for ever that the nodes can run, and none runs in circles.
func TestEverythingEndsThatCan(t *testing.T) {
	t.Parallel()

	for _, e := range baseline.Policies() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t, policy(e.Name))
				for _, r := range w.runs {
					r.Stopping = false
				}

				// Nobody asks the policy while a job runs that never ends and nothing else
				// happens. That one had the nodes for the whole year, also if the last plan,
				// at the very end, gives them to another.
				end, held := w.now.AddDate(1, 0, 0), 0
				w.after = func(place.Plan) {
					if w.now.Before(end) {
						held = endless(w)
					}
				}

				w.live(t)

				for _, it := range w.line.Items() {
					if onOneKind(w.table.Rooms(), it.Shape.Need) && held+endless(w) == 0 {
						t.Fatalf("%s never ran", it.Job)
					}
				}
			})
		})
	}
}

// onOneKind reports whether a job could start if the nodes were empty, all its
// nodes being of one kind: the elastic policies give it no others.
func onOneKind(rooms []fleet.Room, need fleet.Need) bool {
	byKind := map[int32][]fleet.Room{}
	for _, r := range rooms {
		byKind[r.Kind] = append(byKind[r.Kind], r)
	}

	for _, list := range byKind {
		if feasible(list, need) {
			return true
		}
	}

	return need.MaxGPUs == 0 && feasible(rooms, need)
}

// endless counts the jobs that run and never end by themselves.
func endless(w *world) int {
	n := 0
	for _, r := range w.runs {
		if r.Lasts == 0 && r.Outlook.Speed == nil {
			n++
		}
	}

	return n
}

// TestConservativeNeverDelaysAnybody lets clusters run with run times that are
// known and exact: no job starts later than the first time it was given.
func TestConservativeNeverDelaysAnybody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		w := newWorld(c, ordered.Conservative{})
		given := map[id.Job]time.Time{}
		w.after = func(p place.Plan) {
			for _, s := range p.Starts {
				if at, known := given[s.Item.Job]; known && c.now.After(at) {
					t.Fatalf("%s was to start at %s and does at %s", s.Item.Job, at, c.now)
				}
			}

			for j, at := range ordered.Reservations(c.view()) {
				if first, known := given[j]; !known {
					given[j] = at
				} else if at.After(first) {
					t.Fatalf("%s was to start at %s, and now is to at %s", j, first, at)
				}
			}
		}

		for range rapid.IntRange(2, 10).Draw(t, "jobs") {
			j := drawWant(t, true)
			j.spec.GPUs.Max = j.spec.GPUs.Min // a range may take more than it was given a time for
			c.add(j)

			if rapid.Bool().Draw(t, "later") {
				w.round(t)
				w.step(t, c.now.Add(time.Duration(rapid.IntRange(1, 10).Draw(t, "minutes"))*time.Minute))
			}
		}

		w.live(t)

		for _, it := range c.line.Items() {
			if feasible(c.table.Rooms(), it.Shape.Need) {
				t.Fatalf("%s never ran", it.Job)
			}
		}
	})
}

// comparable lets plans be compared: what they point to is the view's.
var comparable = cmpopts.EquateComparable(&queue.Item{}, &place.Running{})
