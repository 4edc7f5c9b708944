package duration

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/forecast/history"
	"trainyard/internal/quantile"
)

// domain is the applicability domain of the model: the words and ranges of the training data. Outside of it the model
// refuses to extrapolate.
type domain struct {
	Tasks  map[string]int        `json:"tasks"` // finished jobs of each
	Models map[string]int        `json:"models"`
	GPUs   map[string]int        `json:"gpus"`
	Ranges map[string]interval   `json:"all"`   // amounts
	Kinds  map[string]kindRanges `json:"kinds"` // and by model, or by task
	// Variance is what a missing feature, which nearly all finished jobs have, adds to the variance of the log
	// duration.
	Variance map[string]float64 `json:"doubt"`
	Count    int                `json:"count"`
	// Validated says that the out-of-fold errors of each kind are known. They are not in models of earlier versions.
	Validated bool `json:"validated,omitempty"`
}

// interval is the range of the logarithms of an amount.
type interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// kindRanges are the ranges of one kind of job.
type kindRanges struct {
	Count   int                 `json:"count"`
	Amounts map[string]interval `json:"amounts"`
	Checked int                 `json:"checked,omitempty"` // jobs of the kind that were predicted out of fold
	Error   float64             `json:"error,omitempty"`   // median of |log(actual/predicted)| of those
}

// checkedAmounts are the amounts that must be within the ranges.
var checkedAmounts = []string{"params", "batch", "rate", "amount", "tflops", "gpus", "nodes"}

// By what factor an amount may be outside the range: among all jobs, and for its kind, of which fewer were seen.
const (
	rangeFactor     = 2.0
	kindRangeFactor = 4.0
	minKindJobs     = 5 // jobs of a kind that define its range, and that must have been validated
	// maxKindError is the out-of-fold error of a kind, as a logarithm, beyond which the model gives no estimate for it.
	maxKindError = 0.5
)

func learnDomain(records []*history.Past) *domain {
	k := &domain{
		Tasks: map[string]int{}, Models: map[string]int{}, GPUs: map[string]int{},
		Ranges: map[string]interval{}, Kinds: map[string]kindRanges{}, Count: len(records),
	}

	for _, r := range records {
		f := &r.Features
		k.Tasks[history.Normalize(f.Task)]++
		k.Models[history.Normalize(f.Model)]++
		k.GPUs[history.Normalize(f.GPU)]++
		kind := k.Kinds[history.Kind(f)]
		if kind.Amounts == nil {
			kind.Amounts = map[string]interval{}
		}

		kind.Count++
		k.Kinds[history.Kind(f)] = kind

		have := amounts(f, Progress{})
		for _, name := range checkedAmounts {
			if v, ok := have[name]; ok {
				widen(k.Ranges, name, v)
				widen(kind.Amounts, name, v)
			}
		}
	}

	return k
}

func widen(ranges map[string]interval, name string, v float64) {
	r, ok := ranges[name]
	if !ok {
		r = interval{v, v}
	}

	ranges[name] = interval{min(r.Low, v), max(r.High, v)}
}

// check returns why a job is outside the domain, or nil.
func (k *domain) check(f *history.Features) error {
	var why []string
	why = append(why, k.unseenWord("model", f.Model, k.Models)...)
	why = append(why, k.unseenWord("task", f.Task, k.Tasks)...)
	if f.TFLOPS <= 0 { // a GPU of known speed need not have been seen
		why = append(why, k.unseenWord("GPU", f.GPU, k.GPUs)...)
	}

	if f.Model == "" && f.Task == "" {
		why = append(why, "it does not declare what it trains")
	}

	return outside(append(why, k.outOfRange(f)...))
}

// outside returns the error for a job that the model does not answer for, nil if nothing speaks against it.
func outside(why []string) error {
	if len(why) == 0 {
		return nil
	}

	return fault.New(fault.NotFound, "outside_history", "no similar job has finished: %s", strings.Join(why, "; "))
}

// unseenWord says that a word was not seen, and which were.
func (k *domain) unseenWord(what, word string, seen map[string]int) []string {
	p := history.Normalize(word)
	if p == "" || seen[p] > 0 {
		return nil
	}
	if seen[""] == k.Count {
		return []string{fmt.Sprintf("no finished job declares its %s, this one is %s", what, word)}
	}

	words := slices.DeleteFunc(slices.Collect(maps.Keys(seen)), func(s string) bool { return s == "" })
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(cmp.Compare(seen[b], seen[a]), cmp.Compare(a, b)) })
	list := strings.Join(words[:min(len(words), 5)], ", ")
	if len(words) > 5 {
		list += ", …"
	}

	return []string{fmt.Sprintf("%s %s has not been seen, only %s", what, word, list)}
}

// validate enters how wrong the model was about jobs that it had not seen, by their kind.
func (k *domain) validate(errors map[string][]float64) {
	k.Validated = true

	for name, list := range errors {
		kind := k.Kinds[name]
		kind.Checked, kind.Error = len(list), quantile.Median(list)
		k.Kinds[name] = kind
	}
}

// unproven says that the model was not right enough about jobs of the kind, or was not asked about enough of them.
func (k *domain) unproven(f *history.Features) []string {
	switch kind := k.Kinds[history.Kind(f)]; {
	case !k.Validated:
		return nil
	case kind.Checked < minKindJobs:
		return []string{fmt.Sprintf("only %d jobs of its kind could be validated", kind.Checked)}
	case kind.Error > maxKindError:
		return []string{fmt.Sprintf("durations of its kind are mispredicted by %.0f %% (median)", 100*math.Expm1(kind.Error))}
	}

	return nil
}

// outOfRange says which amounts are far outside the ranges.
func (k *domain) outOfRange(f *history.Features) []string {
	have := amounts(f, Progress{})
	kind := k.Kinds[history.Kind(f)]
	var why []string

	for _, name := range checkedAmounts {
		v, present := have[name]
		if !present {
			continue
		}

		r, ok := k.Ranges[name]

		margin := math.Log(rangeFactor)
		if in, sure := kind.Amounts[name]; sure && kind.Count >= minKindJobs {
			low, high := in.Low-math.Log(kindRangeFactor), in.High+math.Log(kindRangeFactor)
			if v < low || v > high {
				r, margin = in, math.Log(kindRangeFactor)
			}
		}

		if ok && (v < r.Low-margin || v > r.High+margin) {
			why = append(
				why,
				fmt.Sprintf(
					"%s %s is far outside the range of finished jobs, %s to %s",
					name,
					figure(v),
					figure(r.Low),
					figure(r.High),
				),
			)
		}
	}

	return why
}

// figure writes an amount of which the logarithm is given.
func figure(log float64) string { return fmt.Sprintf("%.3g", math.Exp(log)) }

// optionalFeatures are the features that a job may lack, and how to remove them.
var optionalFeatures = []struct {
	name    string
	present func(*history.Features) bool
	clear   func(*history.Features)
}{
	{"params", func(f *history.Features) bool { return f.Params > 0 }, func(f *history.Features) { f.Params = 0 }},
	{"batch", func(f *history.Features) bool { return f.Batch > 0 }, func(f *history.Features) { f.Batch = 0 }},
	{"rate", func(f *history.Features) bool { return f.Rate > 0 }, func(f *history.Features) { f.Rate = 0 }},
	{"amount", func(f *history.Features) bool { return f.Amount > 0 }, func(f *history.Features) { f.Amount = 0 }},
	{"gpus", func(f *history.Features) bool { return f.GPUs > 0 }, func(f *history.Features) { f.GPUs = 0 }},
	{"nodes", func(f *history.Features) bool { return f.Nodes > 0 }, func(f *history.Features) { f.Nodes = 0 }},
	{
		"gpu",
		func(f *history.Features) bool { return f.GPU != "" || f.TFLOPS > 0 },
		func(f *history.Features) { f.GPU, f.TFLOPS = "", 0 },
	},
	{
		"framework",
		func(f *history.Features) bool { return f.Framework != "" },
		func(f *history.Features) { f.Framework = "" },
	},
	{"task", func(f *history.Features) bool { return f.Task != "" }, func(f *history.Features) { f.Task = "" }},
	{"model", func(f *history.Features) bool { return f.Model != "" }, func(f *history.Features) { f.Model = "" }},
	{
		"target",
		func(f *history.Features) bool { return f.Target != 0 },
		func(f *history.Features) { f.Target, f.Metric = 0, "" },
	},
}

// missingVariances measures by how much predictions move if a feature that nearly all finished jobs have is removed.
func (m *Model) missingVariances(records []*history.Past) map[string]float64 {
	doubt := map[string]float64{}
	const probed = 100
	for _, part := range optionalFeatures {
		present, sum, n := 0, 0.0, 0
		for i, r := range records {
			if !part.present(&r.Features) {
				continue
			}

			present++

			if i%max(len(records)/probed, 1) != 0 {
				continue
			}

			less := r.Features
			part.clear(&less)
			d := m.learners.predict(&less, Progress{}) - m.learners.predict(&r.Features, Progress{})
			sum += d * d
			n++
		}

		if n > 0 && present*10 >= len(records)*9 {
			doubt[part.name] = sum / float64(n)
		}
	}

	return doubt
}

// missing returns the features that a job lacks and nearly all finished jobs have, and the variance that this adds.
func (k *domain) missing(f *history.Features) (names []string, doubt float64) {
	for _, part := range optionalFeatures {
		if d, ok := k.Variance[part.name]; ok && !part.present(f) {
			names = append(names, part.name)
			doubt += d
		}
	}

	return names, doubt
}
