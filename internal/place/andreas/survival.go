package andreas

import "trainyard/internal/place/andreas/problem"

// ending is a chance that a task ends when a share of what is left of it is done.
type ending struct{ share, chance float64 }

// maxEndings is how many endings of one task are told apart.
const maxEndings = 10

// toTheEnd is how a task ends of which nothing says that it may end early.
var toTheEnd = []ending{{1, 1}}

// endings lists how a task may end. Many trainings end early, because they have
// reached what they were for or never will. To one that may, much speed at the
// beginning is of little use: if it lives on it can still have more GPUs. So its
// candidates are judged by all of its endings, each with what it would cost then.
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
			// Those that end in a stretch do so in its middle, those at the end at the end.
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

// survival is the share of jobs that still run when so much of their work is done, in
// straight lines between what is known.
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
