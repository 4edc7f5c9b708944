package main

import (
	"cmp"
	"slices"

	"trainyard/internal/forecast/curve"
)

// goalCase is what was said about a goal that is reached, or is not.
type goalCase struct {
	hasTotal        bool    // the program said when it ends
	beyond          float64 // how much better the goal is than what the run reached; 0 if it was reached
	missProbability float64
	reached         bool
}

// margins are how much better goals are that are not reached than a run's best, as parts of what it
// gained after its first fifth.
var margins = [...]float64{0.1, 0.5}

// goalCases asks of runs that went on to an end of their own whether they reach goals: the one they did reach, and
// others that are better than their best. Runs that end when the goal is reached are
// left out: how it would have continued is unknown.
func goalCases(list []sample) []goalCase {
	var out []goalCase
	for i := range list {
		s := &list[i]
		w := &s.whole

		if s.excludedSystem != "" {
			continue
		}

		for _, share := range []float64{0.4, 0.6, 0.8} {
			n := 0
			for n < len(w.X) && w.X[n] <= share*w.Total {
				n++
			}

			if n < minPoints || w.X[n-1] >= s.End {
				continue
			}

			c := curve.Curve{X: w.X[:n], Y: w.Y[:n], Goal: w.Goal}
			out = append(out, goalCase{false, 0, curve.Best(&c).Never, true})
			c.Total = w.Total
			out = append(out, goalCase{true, 0, curve.Best(&c).Never, true})
			for _, m := range margins {
				c.Goal, c.Total = beyond(w, m), 0
				out = append(out, goalCase{false, m, curve.Best(&c).Never, false})
				c.Total = w.Total
				out = append(out, goalCase{true, m, curve.Best(&c).Never, false})
			}
		}
	}

	return out
}

// beyond returns a goal that a run did not reach.
func beyond(w *curve.Curve, margin float64) curve.Goal {
	best := w.Y[0]
	for _, y := range w.Y {
		if w.Goal.Rising {
			best = max(best, y)
		} else {
			best = min(best, y)
		}
	}

	return curve.Goal{Value: best + (best-w.Y[len(w.Y)/5])*margin, Rising: w.Goal.Rising, Set: true}
}

// aucAndBrier returns how likely a goal that is not reached is thought less likely than one
// that is (the area under the curve of the receiver), and the mean squared error of the chance.
func aucAndBrier(list []goalCase) (area, brier float64) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b goalCase) int { return cmp.Compare(a.missProbability, b.missProbability) })
	var pairs, reached, not float64

	for i := 0; i < len(list); {
		var r, n float64
		k := i
		for ; k < len(list) && list[k].missProbability == list[i].missProbability; k++ {
			truth := 1.0
			if list[k].reached {
				r++
				truth = 0
			} else {
				n++
			}

			brier += (list[k].missProbability - truth) * (list[k].missProbability - truth)
		}

		pairs += n * (reached + r/2)
		reached += r
		not += n
		i = k
	}

	return pairs / (reached * not), brier / float64(len(list))
}
