package place_test

import (
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// runs lets a job that resumes run on seats, and returns it as the view shows it.
func (y yard) runs(number uint64, n fleet.Need, seats ...place.Allocation) *place.Running {
	it := &queue.Item{
		Job:     id.NewJob(number),
		Number:  number,
		Shape:   &queue.Shape{Need: n},
		Outlook: &job.Outlook{Resumes: true},
	}

	r := &place.Running{Item: it, Run: id.NewRun(it.Job, 1), Allocations: seats}
	for _, s := range seats {
		y.Book(s.Node, fleet.Hold{Run: r.Run, Job: it.Job, GPUs: s.GPUs, CPUs: n.CPUs, Memory: n.Memory})
		r.GPUs += bits.OnesCount64(s.GPUs)
	}

	return r
}

// TestCheckOfStops has a full yard: j1 runs on all of a, j2 on b, j3 saves no
// checkpoint and j4 is being stopped.
func TestCheckOfStops(t *testing.T) {
	t.Parallel()
	seat := func(node string, gpus uint64) place.Allocation {
		return place.Allocation{Node: id.Node(node), GPUs: gpus}
	}

	type world struct {
		j1, j2, j3, j4 *place.Running
		waiting        *queue.Item // wants 4 GPUs
		small          *queue.Item // wants 1 GPU
	}

	why := "for the sake of others"
	for name, tc := range map[string]struct {
		plan   func(w *world) place.Plan
		stops  []id.Job // that pass
		starts []id.Job
		bad    []string // what is said of the rest, without the beginning
	}{
		"a start takes what a stop frees": {
			plan: func(w *world) place.Plan {
				return place.Plan{Stops: []place.Stop{{Running: w.j1, Reason: why}}, Starts: []place.Start{{Item: w.waiting, Allocations: []place.Allocation{seat("a", 15)}, Reason: why}}}
			},
			stops: []id.Job{"j1"}, starts: []id.Job{"j9"},
		},
		"without the stop there is no room": {
			plan: func(w *world) place.Plan {
				return place.Plan{Starts: []place.Start{{Item: w.waiting, Allocations: []place.Allocation{seat("a", 15)}, Reason: why}}}
			},
			bad: []string{"j9 it does not fit on node a"},
		},
		"a job moves to where another was": {
			plan: func(w *world) place.Plan {
				return place.Plan{Stops: []place.Stop{{Running: w.j1, Reason: why}, {Running: w.j2, Reason: why}}, Starts: []place.Start{{Item: w.j1.Item, Allocations: []place.Allocation{seat("b", 15)}, Reason: why}}}
			},
			stops: []id.Job{"j1", "j2"}, starts: []id.Job{"j1"},
		},
		"what was freed is given away once": {
			plan: func(w *world) place.Plan {
				return place.Plan{Stops: []place.Stop{{Running: w.j1, Reason: why}}, Starts: []place.Start{
					{Item: w.waiting, Allocations: []place.Allocation{seat("a", 15)}, Reason: why}, {Item: w.small, Allocations: []place.Allocation{seat("a", 1)}, Reason: why}}}
			},
			stops: []id.Job{"j1"}, starts: []id.Job{"j9"}, bad: []string{"j10 it does not fit on node a"},
		},
		"a job that saves nothing is not stopped": {
			plan: func(w *world) place.Plan {
				return place.Plan{Stops: []place.Stop{{Running: w.j3, Reason: why}, {Running: w.j2, Reason: why}}}
			},
			stops: []id.Job{"j2"}, bad: []string{"j3 it has no checkpoints and would lose its work"},
		},
		"one that is being stopped is left alone": {
			plan: func(w *world) place.Plan { return place.Plan{Stops: []place.Stop{{Running: w.j4, Reason: why}}} },
			bad:  []string{"j4 it is already being stopped"},
		},
		"what it holds is not free yet": {
			plan: func(w *world) place.Plan {
				return place.Plan{Starts: []place.Start{{Item: w.small, Allocations: []place.Allocation{seat("d", 1)}, Reason: why}}}
			},
			bad: []string{"j10 it does not fit on node d"},
		},
		"stopped twice": {
			plan: func(w *world) place.Plan {
				return place.Plan{Stops: []place.Stop{{Running: w.j1, Reason: why}, {Running: w.j1, Reason: why}}}
			},
			stops: []id.Job{"j1"}, bad: []string{"j1 it is already being stopped"},
		},
		"no reason": {
			plan: func(w *world) place.Plan { return place.Plan{Stops: []place.Stop{{Running: w.j1, Reason: ""}}} },
			bad:  []string{"j1 the plan gives no reason"},
		},
		"another run of the job": {
			plan: func(w *world) place.Plan {
				old := *w.j1
				old.Run = id.NewRun(old.Job, 7)
				return place.Plan{Stops: []place.Stop{{Running: &old, Reason: why}}}
			},
			bad: []string{"j1 it is no longer running"},
		},
		"a job that does not run": {
			plan: func(w *world) place.Plan {
				return place.Plan{Stops: []place.Stop{{Running: &place.Running{Item: w.waiting, Run: "j9.1"}, Reason: why}}}
			},
			bad: []string{"j9 it is no longer running"},
		},
		"a stop falls with the start it was for": {
			plan: func(w *world) place.Plan {
				return place.Plan{Stops: []place.Stop{{Running: w.j1, Reason: why}}, Starts: []place.Start{{Item: w.j1.Item, Allocations: []place.Allocation{seat("x", 15)}, Reason: why}}}
			},
			bad: []string{"j1 there is no node x"},
		},
		"and with it goes who wanted its room": {
			plan: func(w *world) place.Plan {
				stops := []place.Stop{{Running: w.j1, Reason: why}, {Running: w.j2, Reason: why}}

				return place.Plan{Stops: stops, Starts: []place.Start{
					{Item: w.small, Allocations: []place.Allocation{seat("a", 1)}, Reason: why},
					{Item: w.j1.Item, Allocations: []place.Allocation{seat("x", 15)}, Reason: why},
					{Item: w.waiting, Allocations: []place.Allocation{seat("b", 15)}, Reason: why}}}
			},
			stops: []id.Job{"j2"}, starts: []id.Job{"j9"}, bad: []string{"j10 it does not fit on node a", "j1 there is no node x"},
		},
		"stops that fall one after the other": {
			plan: func(w *world) place.Plan { // j1 cannot start, so it stays; so j2 cannot go there, so it stays too
				stops := []place.Stop{{Running: w.j3, Reason: why}, {Running: w.j1, Reason: why}, {Running: w.j2, Reason: why}}

				return place.Plan{Stops: stops, Starts: []place.Start{
					{Item: w.j1.Item, Allocations: []place.Allocation{seat("x", 15)}, Reason: why}, {Item: w.j2.Item, Allocations: []place.Allocation{seat("a", 15)}, Reason: why}}}
			},
			bad: []string{"j3 it has no checkpoints and would lose its work", "j1 there is no node x", "j2 it does not fit on node a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			for _, n := range []string{"a", "b", "c", "d"} {
				y.node(n, 4, nil)
			}

			w := &world{
				j1: y.runs(1, need(4, nil), seat("a", 15)), j2: y.runs(2, need(4, nil), seat("b", 15)),
				j3: y.runs(3, need(4, nil), seat("c", 15)), j4: y.runs(4, need(4, nil), seat("d", 15)),
				waiting: &queue.Item{Job: "j9", Number: 9, Shape: &queue.Shape{Need: need(4, nil)}},
				small:   &queue.Item{Job: "j10", Number: 10, Shape: &queue.Shape{Need: need(1, nil)}},
			}

			w.j3.Outlook.Resumes, w.j4.Stopping = false, true
			v := y.view()
			v.Running = []*place.Running{w.j1, w.j2, w.j3, w.j4}
			before := slices.Clone(v.Rooms)
			good, errs := place.Check(v, tc.plan(w))

			var stops, starts []id.Job
			for _, s := range good.Stops {
				stops = append(stops, s.Running.Job)
			}

			for _, s := range good.Starts {
				starts = append(starts, s.Item.Job)
			}

			var bad []string
			for _, err := range errs {
				bad = append(
					bad,
					strings.Replace(strings.TrimPrefix(err.Error(), "the plan for job "), " cannot be carried out:", "", 1),
				)
			}

			if diff := cmp.Diff(tc.stops, stops); diff != "" {
				t.Error("stops:", diff)
			}

			if diff := cmp.Diff(tc.starts, starts); diff != "" {
				t.Error("starts:", diff)
			}

			if diff := cmp.Diff(tc.bad, bad); diff != "" {
				t.Error(diff)
			}

			if !cmp.Equal(before, v.Rooms) {
				t.Error("the check changed its view")
			}
		})
	}
}

// TestCheckNeverOverbooks draws plans without sense. Whatever passes can be
// carried out: the stops leave room for all the starts, and nothing that was
// fine alone is lost without a word.
func TestCheckNeverOverbooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		y := newYard()
		nodes := []string{"a", "b", "c"}
		for _, n := range nodes {
			y.node(n, 4, nil)
		}

		drawSeats := func(what string) []place.Allocation {
			var seats []place.Allocation
			for range rapid.IntRange(1, 2).Draw(t, what+" seats") {
				seats = append(seats, place.Allocation{
					Node: id.Node(rapid.SampledFrom(append(nodes, "x")).Draw(t, what+" node")),
					GPUs: rapid.Uint64Range(0, 15).Draw(t, what+" GPUs"),
				})
			}

			return seats
		}

		any14 := need(1, func(s *job.Spec) {
			s.Resources.GPUs.Max, s.Resources.Nodes = 4, job.Range{Min: 1, Max: 2}
		})

		v := &place.View{Now: now, Queue: queue.New()}
		for i := range nodes { // one job on each node
			r := y.runs(
				uint64(i+1),
				any14,
				place.Allocation{Node: id.Node(nodes[i]), GPUs: rapid.Uint64Range(1, 15).Draw(t, "held")},
			)

			r.Outlook.Resumes = rapid.IntRange(0, 3).Draw(t, "resumes") > 0
			v.Running = append(v.Running, r)
		}

		v.Rooms = y.Rooms()

		var p place.Plan
		for _, r := range v.Running {
			if rapid.Bool().Draw(t, "stop") {
				p.Stops = append(p.Stops, place.Stop{Running: r, Reason: "why not"})
				if rapid.Bool().Draw(t, "again") {
					p.Starts = append(p.Starts, place.Start{Item: r.Item, Allocations: drawSeats("again"), Reason: "why not"})
				}
			}
		}

		for i := range rapid.IntRange(0, 4).Draw(t, "new") {
			it := &queue.Item{Job: id.NewJob(uint64(i + 10)), Number: uint64(i + 10), Shape: &queue.Shape{Need: any14}}
			p.Starts = append(p.Starts, place.Start{Item: it, Allocations: drawSeats("new"), Reason: "why not"})
		}

		good, bad := place.Check(v, p)
		if len(good.Starts)+len(bad) < len(p.Starts) {
			t.Fatalf("of %d starts %d pass and %d are refused", len(p.Starts), len(good.Starts), len(bad))
		}

		for _, s := range good.Stops {
			for _, seat := range s.Running.Allocations {
				y.Release(seat.Node, s.Running.Run)
			}
		}

		for _, s := range good.Starts {
			for _, seat := range s.Allocations {
				r, _ := y.Get(seat.Node)
				if seat.GPUs&^r.Free != 0 {
					t.Fatalf("job %s is given GPUs %b of %s, where %b are free", s.Item.Job, seat.GPUs, seat.Node, r.Free)
				}

				y.Book(seat.Node, fleet.Hold{Run: id.NewRun(s.Item.Job, 2), GPUs: seat.GPUs, CPUs: 1000})
			}
		}

		for _, s := range good.Stops { // a job that was to run elsewhere does so or stays
			wanted := func(st place.Start) bool { return st.Item == s.Running.Item }
			if slices.ContainsFunc(p.Starts, wanted) && !slices.ContainsFunc(good.Starts, wanted) {
				t.Fatalf("job %s is stopped and its start was refused", s.Running.Job)
			}
		}
	})
}
