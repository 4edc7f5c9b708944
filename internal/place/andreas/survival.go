package andreas

import "trainyard/internal/place/andreas/problem"

// ending is the chance that a task ends when a share of its remaining work is done.
type ending struct{ share, chance float64 }

// maxEndings bounds how many endings of one task are distinguished.
const maxEndings = 10

// toTheEnd is the only ending of a task that is not expected to end early.
var toTheEnd = []ending{{1, 1}}

// endings lists how a task may end. Many trainings end early, because they have reached their
// target or never will. For such a job, much speed at the beginning is of little use: if it
// survives, it can still have more GPUs later. Its candidates are therefore valued by the mean over
// all its endings.
func (y *planner) endings(t *problem.Task) []ending {
	sv := y.o.Survival
	speed := t.Item.Outlook.Speed
	if len(sv) == 0 || speed == nil || speed.Work <= 0 || t.RemainingWork <= 0 {
		return toTheEnd
	}

	done := max(1-t.RemainingWork/speed.Work, 0)
	alive := y.survival(done)
	if alive <= 0 {
		return toTheEnd
	}

	list := make([]ending, 0, maxEndings)
	before := alive

	for i := 1; i <= maxEndings; i++ {
		share := float64(i) / maxEndings
		now := 0.0
		if i < maxEndings {
			now = y.survival(done + (1-done)*share)
		}

		if p := (before - now) / alive; p > 0 {
			// A task that ends within a stretch is assumed to end in its middle, one that runs to
			// the end at the end.
			at := share - 0.5/maxEndings
			if i == maxEndings {
				at = 1
			}

			list = append(list, ending{at, p})
		}

		before = now
	}

	return list
}

// survival returns the fraction of jobs that still run when a share of their work is done, by
// linear interpolation.
func (y *planner) survival(done float64) float64 {
	sv := y.o.Survival
	at := done * float64(len(sv))
	i := int(at)
	if i >= len(sv) {
		return sv[len(sv)-1]
	}

	from := 1.0
	if i > 0 {
		from = sv[i-1]
	}

	return from + (sv[i]-from)*(at-float64(i))
}
