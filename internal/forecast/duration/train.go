package duration

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"

	"trainyard/internal/fault"
	"trainyard/internal/forecast/history"
)

const (
	// MinRecords is how many finished jobs training needs.
	MinRecords = 20
	// MaxRecords is how many finished jobs training uses at most: the newest.
	MaxRecords = 20_000
	folds      = 4
)

// Train fits a model to finished jobs. It is a grouped four-fold cross-validation: every learner is trained four times,
// each time without one fold of job groups, on which it is then validated. A prediction is the mean over the folds of
// the weighted mean over the learners; the weights minimise the out-of-fold error. A finished job that has a
// curve with times yields further samples in mid-run, so that the learners can use the progress of a running
// job. The same jobs, in any order, and the same seed give the same model.
func Train(past []history.Past, seed uint64) (*Model, error) {
	records := usable(past)
	if len(records) < MinRecords {
		return nil, fault.New(
			fault.NotFound,
			"no_history",
			"no history yet: %d of %d finished jobs",
			len(records),
			MinRecords,
		)
	}

	t := &training{records: records, seed: seed, samples: samples(records)}
	t.encoder = fitEncoder(t.samples)
	t.splitFolds()
	t.encode()
	t.selectValidation()
	m := &Model{Card: Card{Seed: seed, Records: len(records), Groups: t.groups, Newest: records[0].Finished}}
	m.learners = learners{Format: format, Encoder: t.encoder, Mean: t.mean, Scale: t.scale}
	t.trainLearners(m)
	m.learners.Domain = learnDomain(records)
	m.learners.Domain.Variance = m.missingVariances(records)
	m.learners.Domain.validate(t.kindErrors)
	m.Digest = m.digest()

	return m, nil
}

// usable returns the finished jobs that have a duration, the newest first, in an order that does not depend on the
// order of the argument.
func usable(past []history.Past) []*history.Past {
	var out []*history.Past
	for i := range past {
		if s := past[i].Seconds; finite(s) && s > 0 {
			out = append(out, &past[i])
		}
	}

	slices.SortStableFunc(out, history.Compare)

	return out[:min(len(out), MaxRecords)]
}

// training is a model in the making.
type training struct {
	records     []*history.Past
	seed        uint64
	encoder     *encoder
	fold        []int // of each record
	groups      int   // held out as a whole; 0 if single records are
	samples     []sample
	xs          []example // of each sample
	ys          []float64 // standardized log seconds
	mean, scale float64
	// Indices of the validation samples: of jobs before they start, and in mid-run.
	beforeStart, running []int
	// kindErrors are the absolute log errors out of fold, before jobs start, by kind.
	kindErrors map[string][]float64
}

// splitFolds assigns groups to folds, the large ones first, so that folds have about as many records. With too few
// groups
// single records are assigned.
func (t *training) splitFolds() {
	members := map[string][]int{}
	for i, r := range t.records {
		members[groupOf(r)] = append(members[groupOf(r)], i)
	}

	names := slices.Sorted(maps.Keys(members))
	t.groups = len(names)
	t.fold = make([]int, len(t.records))

	if len(names) < folds {
		t.groups = 0
		for i := range t.records {
			t.fold[i] = i % folds
		}

		return
	}

	rng := rand.New(rand.NewPCG(t.seed, 1))
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(len(members[b]), len(members[a])) })

	var size [folds]int
	for _, name := range names {
		smallest := slices.Index(size[:], slices.Min(size[:]))
		for _, i := range members[name] {
			t.fold[i] = smallest
		}

		size[smallest] += len(members[name])
	}
}

// groupOf returns the group that a job is held out with: jobs of one family leak information about each other.
func groupOf(p *history.Past) string {
	if p.Group != "" {
		return "group " + p.Group
	}

	name := "owner " + p.Features.Owner + " name"
	for _, w := range history.NameWords(p.Features.Name) {
		name += " " + w
	}

	return name
}

// encode computes inputs and standardized targets.
func (t *training) encode() {
	for _, s := range t.samples {
		t.xs = append(t.xs, t.encoder.encode(&s.record.Features, s.progress))
		t.ys = append(t.ys, math.Log(s.record.Seconds))
	}

	t.mean, t.scale = stat.PopMeanStdDev(t.ys, nil)
	t.scale = max(t.scale, 1e-6) // all took the same time
	for i, y := range t.ys {
		t.ys[i] = (y - t.mean) / t.scale
	}
}

// selectValidation finds the samples that are within the domain of the other folds. The rest do not count for
// validation: the model would refuse to predict them.
func (t *training) selectValidation() {
	var domains [folds]*domain
	for k := range folds {
		var others []*history.Past
		for i, r := range t.records {
			if t.fold[i] != k {
				others = append(others, r)
			}
		}

		domains[k] = learnDomain(others)
	}

	var all []int
	for i, s := range t.samples {
		refused := domains[t.fold[s.index]].check(&s.record.Features) != nil
		switch {
		case s.progress.known():
			if !refused {
				t.running = append(t.running, i)
			}

			continue
		case !refused:
			t.beforeStart = append(t.beforeStart, i)
		}

		all = append(all, i)
	}

	if len(t.beforeStart) < MinRecords { // no two are similar: then all count
		t.beforeStart = all
	}

	if len(t.running) < MinRecords {
		t.running = nil
	}
}

// trainLearners trains all learners on all folds and validates them out of fold.
func (t *training) trainLearners(m *Model) {
	words, inputs := len(t.encoder.Words), t.encoder.width()
	var networks [folds][]*network
	outOfFold := map[string][]float64{mlp: nil, trees: make([]float64, len(t.xs)), linear: make([]float64, len(t.xs))}

	atCheckpoint := make([][]float64, checkpoints)
	for s := range atCheckpoint {
		atCheckpoint[s] = make([]float64, len(t.xs))
	}

	for k := range folds {
		xs, ys, out := t.leaveOut(k)
		networks[k] = trainNetwork(xs, ys, inputs, words, rand.New(rand.NewPCG(t.seed, uint64(10+k))))
		f := trainForest(xs, ys, words, rand.New(rand.NewPCG(t.seed, uint64(100+k))))
		l := trainRidge(xs, ys, inputs, words)
		m.learners.Forests = append(m.learners.Forests, f)
		m.learners.Ridges = append(m.learners.Ridges, l)

		var p activations
		for _, i := range out {
			for s, n := range networks[k] {
				atCheckpoint[s][i] = n.predict(&t.xs[i], words, &p)
			}

			outOfFold[trees][i] = f.predict(&t.xs[i], words)
			outOfFold[linear][i] = l.predict(&t.xs[i], words)
		}
	}

	// Early stopping, at the checkpoint with the least out-of-fold error over all folds.
	best := 0
	for s := range atCheckpoint {
		if t.meanError(atCheckpoint[s], t.beforeStart) < t.meanError(atCheckpoint[best], t.beforeStart) {
			best = s
		}
	}

	outOfFold[mlp] = atCheckpoint[best]

	for k := range folds {
		m.learners.Networks = append(m.learners.Networks, networks[k][best])
	}

	var residuals []float64

	m.Validation, m.learners.Begin, residuals = t.evaluate(outOfFold, t.beforeStart)
	t.kindErrors = map[string][]float64{}

	for k, i := range t.beforeStart {
		kind := history.Kind(&t.samples[i].record.Features)
		t.kindErrors[kind] = append(t.kindErrors[kind], math.Abs(residuals[k]))
	}

	if t.running != nil {
		m.Running, m.learners.Run, _ = t.evaluate(outOfFold, t.running)
	}
}

// leaveOut returns the examples and targets outside a fold, and the indices of the samples inside.
func (t *training) leaveOut(fold int) (xs []example, ys []float64, out []int) {
	for i, s := range t.samples {
		if t.fold[s.index] == fold {
			out = append(out, i)
			continue
		}

		xs, ys = append(xs, t.xs[i]), append(ys, t.ys[i])
	}

	return xs, ys, out
}

// evaluate finds the weights with the least out-of-fold error on a grid of quarters, and returns the scores, the
// calibration, and the residuals of the weighted mean in the order of the samples.
func (t *training) evaluate(outOfFold map[string][]float64, samples []int) ([]Score, calibration, []float64) {
	blend := make([]float64, len(t.ys))
	mix := func(w [3]float64) {
		for _, i := range samples {
			blend[i] = w[0]*outOfFold[mlp][i] + w[1]*outOfFold[trees][i] + w[2]*outOfFold[linear][i]
		}
	}

	best, least := [3]float64{}, math.Inf(1)

	const quarters = 4
	for a := range quarters + 1 {
		for b := range quarters + 1 - a {
			w := [3]float64{float64(a) / quarters, float64(b) / quarters, float64(quarters-a-b) / quarters}
			mix(w)

			if e := t.meanError(blend, samples); e < least {
				best, least = w, e
			}
		}
	}

	mix(best)

	var scores []Score
	for i, name := range []string{mlp, trees, linear} {
		scores = append(scores, t.score(name, outOfFold[name], samples, best[i]))
	}

	scores = append(scores, t.score(Blend, blend, samples, 1))

	residuals := make([]float64, 0, len(samples))
	for _, i := range samples {
		residuals = append(residuals, (t.ys[i]-blend[i])*t.scale)
	}

	return scores, calibration{Weights: best, Residuals: subsampleSorted(slices.Clone(residuals))}, residuals
}

// subsampleSorted sorts residuals and keeps a thousand of them, evenly spaced.
func subsampleSorted(r []float64) []float64 {
	slices.Sort(r)
	const limit = 1000
	if len(r) <= limit {
		return r
	}

	out := make([]float64, limit)
	for i := range out {
		out[i] = r[i*(len(r)-1)/(limit-1)]
	}

	return out
}

// meanError is the mean absolute log error of predictions, clipped: a few unpredictable jobs must not decide between
// the learners.
func (t *training) meanError(predictions []float64, samples []int) float64 {
	sum := 0.0
	for _, i := range samples {
		sum += min(math.Abs(predictions[i]-t.ys[i])*t.scale, 0.5)
	}

	return sum / float64(len(samples))
}

// score summarizes the relative errors of a learner.
func (t *training) score(name string, predictions []float64, samples []int, weight float64) Score {
	errs := make([]float64, 0, len(samples))
	within := 0
	for _, i := range samples {
		e := math.Abs(math.Exp(min((predictions[i]-t.ys[i])*t.scale, 50)) - 1)
		if e <= 0.25 {
			within++
		}

		errs = append(errs, e)
	}

	slices.Sort(errs)

	return Score{
		Learner: name, Weight: weight, Records: len(errs),
		Median: errs[len(errs)/2], P80: errs[len(errs)*4/5], Within25: float64(within) / float64(len(errs)),
	}
}
