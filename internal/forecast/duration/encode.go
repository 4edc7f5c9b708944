package duration

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"trainyard/internal/forecast/history"
)

// encoder turns what is known of a job into the inputs of the learners: one-hot words and standardized log amounts.
// Its vocabulary and scales are fitted on past jobs.
type encoder struct {
	// Words are binary inputs: a word of a field that enough past jobs have, or "?" of an amount that is missing.
	Words []wordColumn `json:"words"`
	// Amounts are logarithms, standardized on past jobs.
	Amounts []amountColumn `json:"amounts"`
	index   map[wordColumn]int
}

// wordColumn is a word of a field: framework has "pytorch".
type wordColumn struct {
	Field string `json:"f"`
	Word  string `json:"w"`
}

// amountColumn is the standardization of an amount.
type amountColumn struct {
	Name  string  `json:"name"`
	Mean  float64 `json:"mean"`
	Scale float64 `json:"scale"`
}

// example is the inputs of one job.
type example struct {
	words   []int     // indices of the words that it has, ascending
	amounts []float64 // standardized; 0, the mean, if missing
}

const (
	maxWords        = 192 // inputs
	maxStandardized = 5   // standard deviations beyond which an amount is clipped
	maxHyper        = 16  // hyperparameters that become inputs
)

// amounts returns the log amounts of a job by name, and ratios that matter for its duration, without those that are
// missing.
func amounts(f *history.Features, p Progress) map[string]float64 {
	all := map[string]float64{
		"params":        f.Params,
		"batch":         f.Batch,
		"rate":          f.Rate,
		"amount":        f.Amount,
		"tflops":        f.TFLOPS,
		"gpus":          f.GPUs,
		"nodes":         f.Nodes,
		"batch per gpu": ratio(f.Batch, f.GPUs),
		"tflops in all": f.TFLOPS * f.GPUs,
		"samples":       f.Batch * f.Amount,
	}

	if p.known() {
		all["elapsed"] = p.Elapsed
		all["done"] = p.Done
		all["pace"] = p.Elapsed / p.Done
	}

	for name, v := range f.Hyper {
		all["hyper "+name] = math.Abs(v)
	}

	out := make(map[string]float64, len(all))
	for name, v := range all {
		if finite(v) && v > 0 {
			out[name] = math.Log(v)
		}
	}

	if finite(f.Target) && f.Target != 0 {
		out["target"] = math.Asinh(f.Target * 100)
	}

	return out
}

func ratio(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}

	return a / b
}

// fields returns the words of a job by field.
func fields(f *history.Features) map[string][]string {
	return map[string][]string{
		"task": {history.Normalize(f.Task)}, "model": {history.Normalize(f.Model)}, "metric": {history.Normalize(f.Metric)},
		"framework": history.NameWords(f.Framework), "gpu": history.Words(f.GPU),
	}
}

// fitEncoder learns words and amounts from past jobs. A column that is the same in nearly all of
// them carries no information and is left out.
func fitEncoder(past []sample) *encoder {
	e := &encoder{}
	values := map[string][]float64{}
	seen := map[wordColumn]int{}
	groups := map[wordColumn]map[string]bool{} // that have it

	all := map[string]bool{}
	for _, s := range past {
		p := s.record
		all[groupOf(p)] = true

		for name, v := range amounts(&p.Features, s.progress) {
			values[name] = append(values[name], v)
		}

		for column := range wordsOf(&p.Features) {
			seen[column]++

			if groups[column] == nil {
				groups[column] = map[string]bool{}
			}

			groups[column][groupOf(p)] = true
		}
	}

	few := max(2, len(past)/200)
	hypers := 0

	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		if strings.HasPrefix(name, "hyper ") {
			if hypers == maxHyper || len(v) < len(past)/20 {
				continue
			}

			hypers++
		}

		mean, deviation := stat.PopMeanStdDev(v, nil)
		if deviation > 1e-9 {
			e.Amounts = append(e.Amounts, amountColumn{Name: name, Mean: mean, Scale: deviation})
		}

		if missing := len(past) - len(v); missing >= few && len(v) >= few {
			e.Words = append(e.Words, wordColumn{name, "?"})
		}
	}

	var common []wordColumn
	for column, n := range seen {
		// What one group alone has says who it is, not what it does.
		if n >= few && len(past)-n >= few && (len(all) < folds || len(groups[column]) > 1) {
			common = append(common, column)
		}
	}

	slices.SortFunc(common, func(a, b wordColumn) int {
		return cmp.Or(cmp.Compare(seen[b], seen[a]), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Word, b.Word))
	})
	e.Words = append(e.Words, common[:min(len(common), maxWords)]...)
	e.prepare()

	return e
}

// wordsOf returns the words of a job, each once.
func wordsOf(f *history.Features) map[wordColumn]bool {
	set := map[wordColumn]bool{}
	for field, list := range fields(f) {
		for _, w := range list {
			if w != "" {
				set[wordColumn{field, w}] = true
			}
		}
	}

	return set
}

// prepare makes the encoder ready after its columns are known.
func (e *encoder) prepare() {
	e.index = make(map[wordColumn]int, len(e.Words))
	for i, w := range e.Words {
		e.index[w] = i
	}
}

// encode returns the inputs of a job.
func (e *encoder) encode(f *history.Features, p Progress) example {
	x := example{amounts: make([]float64, len(e.Amounts))}
	have := amounts(f, p)
	for i, c := range e.Amounts {
		if v, ok := have[c.Name]; ok {
			x.amounts[i] = min(max((v-c.Mean)/c.Scale, -maxStandardized), maxStandardized)
		}
	}

	for i, w := range e.Words {
		if _, present := have[w.Field]; w.Word == "?" && !present {
			x.words = append(x.words, i)
		}
	}

	for w := range wordsOf(f) {
		if i, ok := e.index[w]; ok {
			x.words = append(x.words, i)
		}
	}

	slices.Sort(x.words)

	return x
}

// width is the number of inputs.
func (e *encoder) width() int { return len(e.Words) + len(e.Amounts) }
