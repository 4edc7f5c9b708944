package match

import (
	"math"

	"trainyard/internal/forecast/history"
)

// similarity is how much one job is like another by what is known of them: 0 is not at all,
// 1 is the same kind of job. A metric that both name and name differently sets them apart, and so do
// task and model together. Jobs that say nothing of this are known by their names and commands.
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
		// Another model may be trained on the same data to the same end.
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

// otherTargetFactor is what is left of kinship if jobs aim at different values: people change
// the target mostly when they change the model or the data.
const otherTargetFactor = 0.3

// otherTaskFactor is what is left of it if the same kind of model, or a job of the same name, does something else.
const otherTaskFactor = 0.4

// hyperparameterDistance adds up how far the numbers of two jobs that shape a curve are from each other:
// those that both name, as factors.
func hyperparameterDistance(a, b *traits) float64 {
	sum := 0.0
	for i := range a.hyperparameters {
		if x, y := a.hyperparameters[i], b.hyperparameters[i]; x > 0 && y > 0 {
			sum += min(math.Abs(math.Log(x/y)), 2)
		}
	}

	return distanceWeight * sum
}

// distanceWeight is what a factor of e in batch, rate or size costs in kinship, as a logarithm.
const distanceWeight = 0.5

// traits are the features of a job as they are compared.
type traits struct {
	metric, task, model, owner string
	name, command              []string // their words, sorted
	target                     float64
	hyperparameters            [3]float64 // batch, rate, parameters
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
		hyperparameters: [3]float64{f.Batch, f.Rate, f.Params},
	}
}

func same(a, b string) bool   { return a != "" && a == b }
func differ(a, b string) bool { return a != "" && b != "" && a != b }

// overlap is how many of the words of two names are in both, as a part of all.
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
