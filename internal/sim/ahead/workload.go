package ahead

import (
	"cmp"
	"io"
	"slices"

	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/internal/yardmaster"
)

// state is the yard of a variant at its beginning.
func (v *variant) state(s *yardmaster.State) yardmaster.State {
	if len(v.changed) == 0 {
		return *s
	}

	out := *s
	out.Jobs = slices.Clone(s.Jobs)

	for i := range out.Jobs {
		if p, ok := v.changed[out.Jobs[i].ID]; ok {
			spec := *out.Jobs[i].Spec
			spec.Priority = p
			out.Jobs[i].Spec = &spec
		}
	}

	return out
}

// again returns the jobs of the last day as they come in the next one at a load: each so many times as the load says,
// the whole part for certain and the rest by chance. The first time it comes when it came, others at any time.
func (q *question) again(load float64, draw int) []*sim.Job {
	var list []*sim.Job

	for i := range q.recent {
		chance := trace.NewRand(uint64(draw), uint64(i))

		for left, first := load, true; left > 0; left, first = left-1, false {
			comes, at := chance.Float64(), chance.Float64()
			if comes >= left {
				continue
			}

			j := q.recent[i]
			if !first {
				j.At = job.Seconds(at * day.Seconds())
			}

			list = append(list, &j)
		}
	}

	slices.SortStableFunc(list, func(a, b *sim.Job) int { return cmp.Compare(a.At, b.At) })

	return list
}

// workload yields jobs one by one.
type workload struct{ left []*sim.Job }

// Next returns the next job.
func (w *workload) Next() (*sim.Job, error) {
	if len(w.left) == 0 {
		return nil, io.EOF
	}

	next := w.left[0]
	w.left = w.left[1:]

	return next, nil
}
