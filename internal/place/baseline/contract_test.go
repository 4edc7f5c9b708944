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
	"trainyard/internal/place/placetest"
	"trainyard/internal/queue"
)

// TestWhoRuns has a job that runs alone on a node of two GPUs, which another one wants.
func TestWhoRuns(t *testing.T) {
	t.Parallel()
	h, m := time.Hour, time.Minute
	for name, tc := range map[string]struct {
		policy        string
		runs, comes   placetest.Job
		after         time.Duration // that the second comes
		stops, starts []id.Job
	}{
		"srtf: a shorter one goes first":            {"srtf", placetest.Lasting(h, 2), placetest.Lasting(10*m, 2), 10 * m, []id.Job{"j1"}, []id.Job{"j2"}},
		"srtf: what is left counts":                 {"srtf", placetest.Lasting(h, 2), placetest.Lasting(10*m, 2), 55 * m, nil, nil},
		"srtf: unknown is longest":                  {"srtf", placetest.Lasting(h, 2), placetest.Lasting(0, 2), 10 * m, nil, nil},
		"srtf: there is room for both":              {"srtf", placetest.Lasting(h, 1), placetest.Lasting(10*m, 1), 10 * m, nil, []id.Job{"j2"}},
		"srtf: who saves nothing stays":             {"srtf", placetest.Job{Lasts: h, Spec: placetest.GPUs(2), Stuck: true}, placetest.Lasting(10*m, 2), 10 * m, nil, nil},
		"srsf: time × GPUs counts":                  {"srsf", placetest.Lasting(20*m, 1), placetest.Lasting(15*m, 2), 0, nil, nil},
		"las: who has had less goes first":          {"las", placetest.Lasting(9*h, 2), placetest.Lasting(0, 2), 30 * m, []id.Job{"j1"}, []id.Job{"j2"}},
		"las: within a queue who runs stays":        {"las", placetest.Lasting(9*h, 2), placetest.Lasting(0, 2), 20 * m, nil, nil},
		"fairshare: between users":                  {"fairshare", placetest.Lasting(9*h, 2), placetest.Job{User: "bob", Spec: placetest.GPUs(2)}, h, nil, nil},
		"sjf never stops":                           {"sjf", placetest.Lasting(h, 2), placetest.Lasting(10*m, 2), 10 * m, nil, nil},
		"tiresias: who has had an hour falls back":  {"tiresias", placetest.Lasting(9*h, 2), placetest.Lasting(0, 2), 31 * m, []id.Job{"j1"}, []id.Job{"j2"}},
		"tiresias: who has not stays":               {"tiresias", placetest.Lasting(9*h, 2), placetest.Lasting(0, 2), 29 * m, nil, nil},
		"elastic-srjf: a shorter one is served":     {"elastic-srjf", placetest.Lasting(h, 2), placetest.Lasting(10*m, 2), 10 * m, []id.Job{"j1"}, []id.Job{"j2"}},
		"elastic-fifo: by submission":               {"elastic-fifo", placetest.Lasting(h, 2), placetest.Lasting(10*m, 2), 10 * m, nil, nil},
		"conservative never stops":                  {"conservative", placetest.Lasting(h, 2), placetest.Lasting(10*m, 2), 10 * m, nil, nil},
		"edl never stops one that is not elastic":   {"edl", placetest.Lasting(h, 2), placetest.Lasting(10*m, 2), 10 * m, nil, nil},
		"afs-l: the shorter of two that have none":  {"afs-l", placetest.Lasting(h, 2), placetest.Lasting(10*m, 2), 10 * m, []id.Job{"j1"}, []id.Job{"j2"}},
		"ffdl: the first in line that fit together": {"ffdl", placetest.Lasting(h, 2), placetest.Lasting(10*m, 2), 10 * m, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := placetest.NewCluster()
			c.Box("a", 2)
			w := placetest.NewWorld(c, placetest.Policy(tc.policy))
			c.Add(tc.runs)
			w.Round(t)

			if len(c.Runs) != 1 {
				t.Fatalf("%d jobs run", len(c.Runs))
			}

			c.Now = c.Now.Add(tc.after)
			c.Add(tc.comes)

			p := w.Policy.Plan(w.View())
			if diff := cmp.Diff(tc.stops, placetest.StoppedBy(p)); diff != "" {
				t.Error("stopped:", diff)
			}

			if diff := cmp.Diff(tc.starts, placetest.Started(p)); diff != "" {
				t.Error("started:", diff)
			}
		})
	}
}

// drawWorld draws a yard in which some jobs run and some wait, under a policy.
func drawWorld(t *rapid.T, p place.Policy) *placetest.World {
	c := placetest.DrawCluster(t)
	w := placetest.NewWorld(c, p)

	draw := func(n int) {
		for range n {
			j := placetest.DrawJob(t, rapid.IntRange(0, 3).Draw(t, "exact") > 0)
			j.User = rapid.SampledFrom([]id.User{"ada", "bob"}).Draw(t, "user")
			j.Priority = rapid.SampledFrom([]int{0, 0, 50}).Draw(t, "priority")
			j.Stuck = rapid.IntRange(0, 4).Draw(t, "stuck") == 0
			if rapid.IntRange(0, 2).Draw(t, "elastic") == 0 && j.Spec.GPUs.Max > 0 {
				j.Spec.GPUs, j.Spec.Nodes = job.Range{Min: 1, Max: 4}, job.Range{Min: 1, Max: 3}
				j.Speed = placetest.Curve(1000, 1, 1.8, 2.4, 2.8, 3, 3.1)
			}

			c.Add(j)
		}
	}

	draw(rapid.IntRange(0, 6).Draw(t, "first"))
	w.Round(t)

	c.Now = c.Now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes")) * time.Minute)
	for _, r := range c.Runs {
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
				w := drawWorld(t, placetest.Policy(e.Name))
				v := w.View()
				before := slices.Clone(v.Rooms)

				p := placetest.Policy(e.Name).Plan(v)
				if again := placetest.Policy(e.Name).Plan(v); !cmp.Equal(p, again, comparable) {
					t.Fatalf("same view, another plan: %s", cmp.Diff(p, again, comparable))
				}

				if !cmp.Equal(before, v.Rooms) {
					t.Fatal("the plan changed its view")
				}

				if len(p.Stops) > 0 && !placetest.Policy(e.Name).Revises() {
					t.Fatal("it stops jobs and says that it does not")
				}

				if !p.WakeAt.IsZero() && !p.WakeAt.After(v.Now) {
					t.Fatalf("it wants to be asked again at %s, and now is %s", p.WakeAt, v.Now)
				}

				// A plan takes what it has just started for settled, and the next one does
				// not. So a second may make better use of the same; but it must come to rest.
				for range 6 {
					p = w.Round(t) // passes the check
				}

				if len(p.Stops) > 0 {
					t.Fatalf("asked for the sixth time at once it stops %v", placetest.StoppedBy(p))
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
				w := drawWorld(t, placetest.Policy(e.Name))
				for _, r := range w.Runs {
					r.Stopping = false
				}

				// Nobody asks the policy while a job runs that never ends and nothing else
				// happens. That one had the nodes for the whole year, also if the last plan,
				// at the very end, gives them to another.
				end, held := w.Now.AddDate(1, 0, 0), 0
				w.After = func(place.Plan) {
					if w.Now.Before(end) {
						held = endless(w)
					}
				}

				w.Live(t)

				for _, it := range w.Queue.Items() {
					if onOneKind(w.Table.Rooms(), it.Shape.Need) && held+endless(w) == 0 {
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
		if placetest.Feasible(list, need) {
			return true
		}
	}

	return need.MaxGPUs == 0 && placetest.Feasible(rooms, need)
}

// endless counts the jobs that run and never end by themselves.
func endless(w *placetest.World) int {
	n := 0
	for _, r := range w.Runs {
		if r.Lasts == 0 && r.Outlook.Speed == nil {
			n++
		}
	}

	return n
}

// comparable lets plans be compared: what they point to is the view's.
var comparable = cmpopts.EquateComparable(&queue.Item{}, &place.Running{})
