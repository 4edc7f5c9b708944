package place_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

// held is a hold and its node.
type held struct {
	fleet.Hold
	node id.Node
}

func byEnd(a, b time.Time) int {
	switch {
	case a.IsZero() || b.IsZero():
		return cmp.Compare(map[bool]int{true: 1}[a.IsZero()], map[bool]int{true: 1}[b.IsZero()])
	default:
		return a.Compare(b)
	}
}

// allHolders is the list of holders as plainly as it can be made: all of them, sorted, and then the first.
func allHolders(v *place.View, m *fleet.Matcher) []held {
	var all []held
	for i := range v.Rooms {
		r := &v.Rooms[i]
		_, fits := m.Fits(r)
		if !r.Open || !m.Eligible(r) || fits {
			continue
		}

		for _, h := range r.Holds {
			if m.Need.GPUs == 0 || h.GPUs != 0 || r.CPUs < m.Need.CPUs || r.Memory < m.Need.Memory {
				all = append(all, held{h, r.Node.ID})
			}
		}
	}

	slices.SortStableFunc(all, func(a, b held) int { return byEnd(a.Ends, b.Ends) })

	return all[:min(len(all), 20)]
}

// firstEnds returns the jobs that must have ended before there is room, as plainly as they can be found: those of all
// nodes, sorted, and then those of the first.
func firstEnds(v *place.View, m *fleet.Matcher) []id.Job {
	type vacancy struct {
		node  id.Node
		holds []fleet.Hold
	}

	var all []vacancy
	missing := m.Need.Nodes

	for i := range v.Rooms {
		r := &v.Rooms[i]
		if !r.Open || !m.Eligible(r) {
			continue
		}

		if _, fits := m.Fits(r); fits {
			missing--
			continue
		}

		fits := func(ended []fleet.Hold) bool {
			after := *r
			for _, h := range ended {
				after.Free |= h.GPUs & r.Sound
				after.CPUs += h.CPUs
			}

			_, ok := m.Fits(&after)

			return ok
		}

		holds := slices.Clone(r.Holds)
		if !fits(holds) {
			continue
		}

		for i := len(holds) - 1; i >= 0; i-- { // the last to end first
			if fewer := slices.Delete(slices.Clone(holds), i, i+1); fits(fewer) {
				holds = fewer
			}
		}

		all = append(all, vacancy{r.Node.ID, holds})
	}

	if len(all) < missing {
		return nil
	}

	slices.SortStableFunc(all, func(a, b vacancy) int {
		return cmp.Or(
			byEnd(a.holds[len(a.holds)-1].Ends, b.holds[len(b.holds)-1].Ends),
			cmp.Compare(len(a.holds), len(b.holds)), cmp.Compare(a.node, b.node),
		)
	})

	var jobs []id.Job
	for _, o := range all[:missing] {
		for _, h := range o.holds {
			if !slices.Contains(jobs, h.Job) {
				jobs = append(jobs, h.Job)
			}
		}
	}

	return jobs
}

// TestWhatIsNamedIsTheFirstOfAll: of all runs that hold what a job needs, and of all nodes that will have room for it,
// the first are named, although no list of all of them is made.
func TestWhatIsNamedIsTheFirstOfAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		y := newYard()
		hours := rapid.SampledFrom([]time.Duration{0, 0, 1, 2, 3, 4, 5}) // often unknown, often the same
		number := uint64(0)

		for i := range rapid.IntRange(1, 30).Draw(t, "nodes") {
			name := fmt.Sprintf("n%02d", i)
			gpus := rapid.IntRange(1, 4).Draw(t, "gpus")
			y.node(name, gpus, func(n *fleet.Node) { n.Cordoned = rapid.IntRange(0, 9).Draw(t, "cordoned") == 0 })

			for g := range gpus {
				number++
				bits := uint64(1) << g
				if rapid.IntRange(0, 5).Draw(t, "cpus alone") == 0 {
					bits = 0
				}

				y.hold(name, id.NewJob(number), bits, job.CPUs(1000*rapid.IntRange(1, 4).Draw(t, "cpus")),
					hours.Draw(t, "ends")*time.Hour)
			}
		}

		asks := need(rapid.IntRange(1, 4).Draw(t, "needs"), func(s *job.Spec) {
			nodes := rapid.IntRange(1, 4).Draw(t, "ranks")
			s.Resources.Nodes = job.Range{Min: nodes, Max: nodes}
			s.Resources.CPUs = job.CPUs(1000 * rapid.IntRange(1, 14).Draw(t, "cpus needed"))
		})

		v, m := y.view(), fleet.NewMatcher(asks)
		why := place.Explain(v, place.QueuedJob{Job: "j999", Need: asks}, place.Verdict{})
		if why.Blocker != place.BlockResources {
			return
		}

		want := allHolders(v, m)
		got := make([]held, len(why.Holders))
		for i := range why.Holders {
			got[i] = held{why.Holders[i], why.Nodes[i]}
		}

		if !slices.Equal(got, want) {
			t.Fatalf("holders are\n%+v\nwant\n%+v", got, want)
		}

		var ended []id.Job
		for i := range why.Remedies {
			ended = append(ended, why.Remedies[i].Ended...)
		}

		if jobs := firstEnds(v, m); !slices.Equal(ended, jobs) {
			t.Fatalf("there is room when %v have ended, want %v", ended, jobs)
		}
	})
}
