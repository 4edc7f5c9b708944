package match

import (
	"math"

	"trainyard/internal/forecast/history"
)

// similarity returns how similar two jobs are by their features: 0 is not at all, 1 is the same kind
// of job. Two jobs with different metrics are not similar, nor are two that differ in both task and
// model. Jobs without these features are compared by their names and commands.
func similarity(a, b *traits) float64 {
	if differ(a.metric, b.metric) || differ(a.task, b.task) && differ(a.model, b.model) {
		return 0
	}

	nameOverlap := max(overlap(a.name, b.name), 0.8*overlap(a.command, b.command))

	var neighbours float64
	switch {
	case same(a.model, b.model):
		neighbours = 1
	case differ(a.model, b.model):
		// A different model may be trained on the same data for the same purpose.
		if same(a.task, b.task) && same(a.metric, b.metric) {
			neighbours = 0.25 + 0.5*nameOverlap
		}
	case same(a.task, b.task) && same(a.metric, b.metric):
		neighbours = 0.5 + 0.5*nameOverlap
	case nameOverlap >= 0.5:
		neighbours = nameOverlap
	case same(a.metric, b.metric) && a.target != 0 && a.target == b.target:
		neighbours = 0.25
	}

	if differ(a.task, b.task) {
		neighbours *= otherTaskFactor
	}

	if neighbours > 0 && a.owner != "" && a.owner != b.owner {
		neighbours *= 0.9
	}

	if a.target != 0 && b.target != 0 && math.Abs(a.target-b.target) > 0.01*max(math.Abs(a.target), math.Abs(b.target)) {
		neighbours *= otherTargetFactor
	}

	return neighbours * math.Exp(-hyperparameterDistance(a, b))
}

// otherTargetFactor reduces the similarity of jobs with different target values: people mostly
// change the target when they change the model or the data.
const otherTargetFactor = 0.3

// otherTaskFactor reduces the similarity of jobs with the same model or name but different tasks.
const otherTaskFactor = 0.4

// hyperparameterDistance sums up the distances between the hyperparameters that shape a curve and that
// both jobs state, as logarithms of ratios.
func hyperparameterDistance(a, b *traits) float64 {
	sum := 0.0
	for i := range a.hyperparameters {
		if x, y := a.hyperparameters[i], b.hyperparameters[i]; x > 0 && y > 0 {
			sum += min(math.Abs(math.Log(x/y)), 2)
		}
	}

	for name, x := range a.further {
		if y := b.further[name]; x > 0 && y > 0 {
			sum += min(math.Abs(math.Log(x/y)), 2)
		}
	}

	return distanceWeight * min(sum, maxDistance)
}

// maxDistance bounds what parameters add up to, so that of many none decides alone.
const maxDistance = 4

// distanceWeight is the weight of a factor of e in a parameter, in the logarithm of the similarity.
const distanceWeight = 0.5

// traits are the features of a job, prepared for comparison.
type traits struct {
	metric, task, model, owner string
	name, command              []string // words, sorted
	target                     float64
	hyperparameters            [4]float64 // batch size, learning rate, number of parameters, amount of work
	further                    map[string]float64
}

func traitsOf(f *history.Features) traits {
	return traits{
		metric:          history.Normalize(f.Metric),
		task:            history.Normalize(f.Task),
		model:           history.Normalize(f.Model),
		owner:           history.Normalize(f.Owner),
		name:            history.NameWords(f.Name),
		command:         history.NameWords(f.Command),
		target:          f.Target,
		hyperparameters: [4]float64{f.Batch, f.Rate, f.Params, f.Amount},
		further:         f.Hyper,
	}
}

func same(a, b string) bool   { return a != "" && a == b }
func differ(a, b string) bool { return a != "" && b != "" && a != b }

// overlap returns the fraction of the words of two names that are in both.
func overlap(a, b []string) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}

	both, j := 0, 0
	for _, w := range a {
		for j < len(b) && b[j] < w {
			j++
		}

		if j < len(b) && b[j] == w {
			both++
		}
	}

	return float64(both) / float64(len(a)+len(b)-both)
}
