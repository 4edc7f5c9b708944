package repeat

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/quantile"
)

const (
	bandwidth  = 1.0  // of the kernel by which errors of jobs of another length count less, in logarithms
	widenings  = 3    // how often it is doubled until there are enough errors; then all count the same
	minWeight  = 0.02 // part of the outcomes that must be later than the time a job has run
	priorSteps = 21   // outcomes that stand for a normal distribution
)

// z90 is the 90 % quantile of the standard normal distribution.
const z90 = 1.2815515655446004

// interval returns the prediction of an estimate, given that the job has not ended yet. It returns false if it has run
// longer than all outcomes.
func (x *Index) interval(e *estimate, q *Query) (Prediction, bool) {
	p := Prediction{Level: e.level, Runs: len(e.runs), Error: -1}

	known := newest(x.errors[e.level][index(e.few)], q.Before)
	p.summarize(known)

	residuals := localResiduals(known, e.log)

	switch {
	case residuals != nil:
		p.Records = len(known)
	case len(e.own) >= minErrors:
		for _, r := range e.own {
			residuals = append(residuals, quantile.WeightedValue{Value: r / e.difficulty, Weight: 1})
		}

		p.Records = len(e.own)
	default:
		residuals = priorResiduals(e)
		p.Guess = true
	}

	return p, p.apply(e, residuals, q.Elapsed)
}

// newest returns the last outcomes of jobs that ended before a time, zero for all. It is asked for every past job when
// an index is made, so it copies nothing where it need not: outcomes are in the order of their ends, but for jobs that
// were added later.
func newest(known []outcome, before time.Time) []outcome {
	late := func(o outcome) bool { return !before.IsZero() && !o.at.Before(before) }

	end := len(known)
	for end > 0 && late(known[end-1]) {
		end--
	}

	last := known[max(end-maxErrors, 0):end]
	if !slices.ContainsFunc(last, late) {
		return last
	}

	then := slices.DeleteFunc(slices.Clone(known[:end]), late)

	return then[max(len(then)-maxErrors, 0):]
}

// summarize enters how good such predictions have been.
func (p *Prediction) summarize(known []outcome) {
	var errors []float64

	covered := 0
	for i := range known {
		errors = append(errors, known[i].relative)

		if known[i].checked {
			p.Checked++

			if known[i].covered {
				covered++
			}
		}
	}

	if len(errors) > 0 {
		p.Error = quantile.Median(errors)
	}

	if p.Checked > 0 {
		p.Covered = float64(covered) / float64(p.Checked)
	}
}

// localResiduals returns the residuals of jobs, weighted by how near their predicted length is. It returns nil if
// there are too few.
func localResiduals(known []outcome, log float64) []quantile.WeightedValue {
	if len(known) < minErrors {
		return nil
	}

	residuals := make([]quantile.WeightedValue, len(known))
	width := bandwidth

	for step := range widenings + 1 {
		sum, squares := 0.0, 0.0
		for i := range known {
			z := (known[i].log - log) / width
			weight := math.Exp(-z * z / 2)

			if step == widenings {
				weight = 1
			}

			residuals[i] = quantile.WeightedValue{Value: known[i].residual, Weight: weight}
			sum += weight
			squares += weight * weight
		}

		if squares > 0 && sum*sum/squares >= minErrors {
			break
		}

		width *= 2
	}

	return residuals
}

// priorResiduals stand for a normal distribution with the deviation of a level.
func priorResiduals(e *estimate) []quantile.WeightedValue {
	deviation := priorDeviation[e.level] / z90
	if !e.few {
		deviation = max(deviation, e.difficulty) / e.difficulty
	}

	residuals := make([]quantile.WeightedValue, priorSteps)
	for i := range residuals {
		p := (float64(i) + 0.5) / priorSteps
		residuals[i] = quantile.WeightedValue{Value: deviation * math.Sqrt2 * math.Erfinv(2*p-1), Weight: 1}
	}

	return residuals
}

// apply turns residuals into seconds. It returns false if none of them is later than the time that the job has run.
func (p *Prediction) apply(e *estimate, residuals []quantile.WeightedValue, elapsed float64) bool {
	outcomes := make([]quantile.WeightedValue, 0, len(residuals))
	total, later := 0.0, 0.0

	for _, r := range residuals {
		seconds := max(math.Exp(min(e.log+e.difficulty*r.Value, maxLog))-overhead, 0)
		total += r.Weight

		if seconds > elapsed || elapsed <= 0 {
			outcomes = append(outcomes, quantile.WeightedValue{Value: seconds, Weight: r.Weight})
			later += r.Weight
		}
	}

	if later < minWeight*total || later == 0 {
		return false
	}

	slices.SortFunc(outcomes, byValue)

	// One more outcome than there are: so that the next falls into the interval with the probability stated.
	n := float64(len(outcomes))
	edge := p.tailProbability() * max(1-1/n, 0)
	p.Seconds = job.Band{
		Low:  quantile.Weighted(outcomes, edge),
		Mid:  quantile.Weighted(outcomes, 0.5),
		High: quantile.Weighted(outcomes, 1-edge),
	}

	return true
}

// tailProbability returns the part of the outcomes that an interval leaves out at each end. The jobs of a yard
// change, and what has ended is not all that runs: intervals that held too seldom are widened, and others
// narrowed, by as much as they missed what they claim (Gibbs and Candès, "Adaptive Conformal Inference Under
// Distribution Shift").
func (p *Prediction) tailProbability() float64 {
	n := float64(p.Checked)
	adapted := tail + (p.Covered-(1-2*tail))*n/(n+adaptAfter)

	return min(max(adapted, tail/2), 2*tail)
}

// adaptAfter is the number of intervals that must have been checked until the tails follow half of what they missed.
const adaptAfter = 40

// maxLog is the logarithm of the longest prediction: more than two thousand years.
const maxLog = 25.0

func byValue(a, b quantile.WeightedValue) int { return cmp.Compare(a.Value, b.Value) }
