package calibrate

import (
	"hash/fnv"
	"math"
	"slices"

	"trainyard/internal/quantile"
)

const (
	// quarters is into how many parts the predicted progress of a job is divided.
	quarters = 4
	// priorJobs is how many jobs a prior is worth: the errors seen in a narrow set of cases are shrunk towards those
	// of the wider set by so many pseudo-observations.
	priorJobs = 8
	// noEndPenalty is the log error charged to a method that predicted no end: as if it had said thirty times what
	// was left.
	noEndPenalty = 3.4
	// minError is the smallest error that a method is assumed to have.
	minError = 1e-3
	// folds is the number of cross-validation folds of groups of jobs.
	folds = 5
)

// predictedQuarter returns the quarter of the predicted progress of a job whose true progress is known and
// whose remaining work was estimated with a residual.
func predictedQuarter(progress, residual float64) int {
	return quarter(progress / (progress + (1-progress)*math.Exp(-residual)))
}

// quarter returns the quarter that a fraction of the whole is in, 0 to 3.
func quarter(fraction float64) int {
	return min(max(int(fraction*quarters), 0), quarters-1)
}

// expectedErrors are the median absolute log errors that methods are expected to have, by class and quarter.
type expectedErrors [len(classes)][quarters]PerMethod

// weights returns the weight of each method that gave an estimate: the inverse square of its expected error,
// normalised to a sum of 1.
func (e *expectedErrors) weights(class, quarter int, estimates *PerMethod) PerMethod {
	var weights PerMethod
	total := 0.0
	for m := range weights {
		if !math.IsNaN(estimates[m]) {
			expected := e[class][quarter][m]
			weights[m] = 1 / (expected * expected)
			total += weights[m]
		}
	}

	if total > 0 {
		for m := range weights {
			weights[m] /= total
		}
	}

	return weights
}

// weightedMean returns the weighted mean of the estimates that have a weight.
func weightedMean(weights, estimates *PerMethod) float64 {
	mean := 0.0
	for m := range weights {
		if weights[m] > 0 {
			mean += weights[m] * estimates[m]
		}
	}

	return mean
}

// answered reports whether any method has a weight.
func answered(weights *PerMethod) bool {
	return slices.ContainsFunc(weights[:], func(w float64) bool { return w > 0 })
}

// priorErrors are the expected errors before there is a record.
func priorErrors() *expectedErrors {
	var prior expectedErrors
	for c := range prior {
		for q := range prior[c] {
			for m := range methods {
				prior[c][q][m] = methods[m].prior
			}
		}
	}

	return &prior
}

// fitErrors estimates the errors of the methods from replays: the median of a class is shrunk towards the prior,
// and that of a quarter towards its class.
func fitErrors(replays []replay) *expectedErrors {
	fitted := priorErrors()
	for m := range methods {
		var errors [len(classes)][quarters][]float64
		for i := range replays {
			r := &replays[i]
			e := math.Abs(r.residuals[m])
			if r.noEnd[m] {
				e = noEndPenalty
			}

			if !math.IsNaN(e) {
				errors[r.class][r.quarter] = append(errors[r.class][r.quarter], e)
			}
		}

		for c := range errors {
			class := shrinkTowards(methods[m].prior, slices.Concat(errors[c][:]...))
			for q := range errors[c] {
				fitted[c][q][m] = shrinkTowards(class, errors[c][q])
			}
		}
	}

	return fitted
}

// shrinkTowards returns the median of errors, shrunk towards a prior on the logarithmic scale. The marks of one
// job tell much the same, so that each counts as a fraction of a job.
func shrinkTowards(prior float64, errors []float64) float64 {
	if len(errors) == 0 {
		return prior
	}

	n := float64(len(errors)) / float64(len(ReplayPoints))
	median := max(quantile.Median(errors), minError)

	return math.Exp((n*math.Log(median) + priorJobs*math.Log(prior)) / (n + priorJobs))
}

// foldOf assigns groups of jobs to cross-validation folds.
func foldOf(s *JobScore) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(groupOf(s)))
	return int(h.Sum32() % folds)
}

func groupOf(s *JobScore) string {
	if s.Group != "" {
		return s.Group
	}

	return string(s.Job)
}
