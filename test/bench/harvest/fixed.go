package harvest

import (
	"math/rand/v2"
	"slices"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// fixed is an assignment that never changes: permanent nodes divided into parts, each of which takes one job after the
// other in order of submission. Every job pays for its start, and nothing is ever lost.
type fixed struct {
	jobs   []rigidJob
	length time.Duration
}

// rigidJob is a job as a fixed assignment sees it.
type rigidJob struct {
	at, start time.Duration
	work      float64
	rates     []float64 // by number of nodes
}

func newFixed(jobs []*sim.Job, length time.Duration) *fixed {
	f := &fixed{length: length}
	rates := map[*job.Speed][]float64{}

	for _, j := range jobs {
		speed := j.Spec.Speed
		if rates[speed] == nil {
			curve := speed.On("", 0)
			for n := range j.Spec.Resources.Nodes.Max + 1 {
				rates[speed] = append(rates[speed], curve.Rate(n, n))
			}
		}

		f.jobs = append(f.jobs, rigidJob{j.At, time.Duration(speed.Start), speed.Work, rates[speed]})
	}

	return f
}

// samples is how much is done on parts of these sizes.
func (f *fixed) samples(parts []int) float64 {
	free := make([]time.Duration, len(parts))
	total := 0.0

	for i := range f.jobs {
		j := &f.jobs[i]

		p := slices.Index(free, slices.Min(free))

		works := max(free[p], j.at) + j.start
		if works >= f.length { // and so it is for all that come later
			break
		}

		rate := j.rates[min(parts[p], len(j.rates)-1)]
		free[p] = works + job.Seconds(j.work/rate)
		total += min(j.work, rate*(f.length-works).Seconds())
	}

	return total
}

// tries is how often the search for the best division begins anew.
const tries = 12

// best divides nodes into so many parts with the most samples. It begins with equal parts, and then with others drawn
// by chance, and moves nodes from one part to another as long as that helps. Which part is first matters too: it takes
// the first job.
func (f *fixed) best(nodes, parts int) (sizes []int, samples float64) {
	parts = min(parts, nodes)
	chance := rand.New(rand.NewPCG(1, uint64(parts)))

	for try := range tries {
		start := slices.Repeat([]int{1}, parts)
		for i := parts; i < nodes; i++ {
			if try == 0 {
				start[i%parts]++
			} else {
				start[chance.IntN(parts)]++
			}
		}

		got := f.samples(start)
		for step := 8; step > 0; {
			if !f.improve(start, &got, step) {
				step /= 2
			}
		}

		if got > samples {
			sizes, samples = start, got
		}
	}

	return sizes, samples
}

// improve moves nodes wherever that helps, and reports whether it did anywhere.
func (f *fixed) improve(sizes []int, samples *float64, step int) (better bool) {
	for from := range sizes {
		for to := range sizes {
			if from == to || sizes[from] <= step {
				continue
			}

			sizes[from] -= step
			sizes[to] += step

			if got := f.samples(sizes); got > *samples*(1+1e-12) {
				*samples, better = got, true
				continue
			}

			sizes[from] += step
			sizes[to] -= step
		}
	}

	return better
}
