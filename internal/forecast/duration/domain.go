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
)

// known is what the finished jobs were like, so that a job unlike all of them is not guessed at.
type known struct {
	Tasks  map[string]int      `json:"tasks"` // finished jobs of each
	Models map[string]int      `json:"models"`
	GPUs   map[string]int      `json:"gpus"`
	Names  map[string]int      `json:"names"` // by word
	All    map[string]seen     `json:"all"`   // amounts
	Kinds  map[string]kindSeen `json:"kinds"` // and by model, or by task
	// Doubt is what not knowing something that nearly all finished jobs told adds to the variance of the
	// logarithm of an answer.
	Doubt map[string]float64 `json:"doubt"`
	Count int                `json:"count"`
}

// seen is the range of the logarithms of an amount.
type seen struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// kindSeen is the same for one kind of job.
type kindSeen struct {
	Count   int             `json:"count"`
	Amounts map[string]seen `json:"amounts"`
}

// checked are the amounts that must be near those of finished jobs.
var checked = []string{"params", "batch", "rate", "amount", "tflops", "gpus", "nodes"}

// How far outside the range that was seen an amount may be, as a factor: twice among all jobs, and
// four times for the kind, of which fewer were seen.
const (
	outside     = 2.0
	outsideKind = 4.0
	enoughKind  = 5 // jobs of a kind that show its range
)

func learnKnown(records []*history.Past) *known {
	k := &known{
		Tasks: map[string]int{}, Models: map[string]int{}, GPUs: map[string]int{}, Names: map[string]int{},
		All: map[string]seen{}, Kinds: map[string]kindSeen{}, Count: len(records),
	}
	for _, r := range records {
		f := &r.Features
		k.Tasks[history.Normalize(f.Task)]++
		k.Models[history.Normalize(f.Model)]++
		k.GPUs[history.Normalize(f.GPU)]++
		for _, w := range history.NameWords(f.Name) {
			k.Names[w]++
		}
		kind := k.Kinds[history.Kind(f)]
		if kind.Amounts == nil {
			kind.Amounts = map[string]seen{}
		}
		kind.Count++
		k.Kinds[history.Kind(f)] = kind
		have := amounts(f, Progress{})
		for _, name := range checked {
			if v, ok := have[name]; ok {
				widen(k.All, name, v)
				widen(kind.Amounts, name, v)
			}
		}
	}
	return k
}

func widen(ranges map[string]seen, name string, v float64) {
	r, ok := ranges[name]
	if !ok {
		r = seen{v, v}
	}
	ranges[name] = seen{min(r.Low, v), max(r.High, v)}
}

// like returns how many finished jobs were of the kind.
func (k *known) like(f *history.Features) int { return k.Kinds[history.Kind(f)].Count }

// check returns why a job is unlike all that were seen, or nil.
func (k *known) check(f *history.Features) error {
	var why []string
	why = append(why, k.strange("model", f.Model, k.Models)...)
	why = append(why, k.strange("task", f.Task, k.Tasks)...)
	if f.TFLOPS <= 0 { // a GPU of which it is known how fast it is need not have been seen
		why = append(why, k.strange("GPU", f.GPU, k.GPUs)...)
	}
	if f.Model == "" && f.Task == "" && !k.named(f) {
		why = append(why, "nothing is said of what it trains, and no finished job is called alike")
	}
	why = append(why, k.beyond(f)...)
	if len(why) == 0 {
		return nil
	}
	return fault.New(fault.NotFound, "outside_history", "no finished job is like this one: %s", strings.Join(why, "; "))
}

// strange says that a word was not seen, and which were.
func (k *known) strange(what, word string, seen map[string]int) []string {
	p := history.Normalize(word)
	if p == "" || seen[p] > 0 {
		return nil
	}
	if seen[""] == k.Count {
		return []string{fmt.Sprintf("none said its %s, this one is %s", what, word)}
	}
	words := slices.DeleteFunc(slices.Collect(maps.Keys(seen)), func(s string) bool { return s == "" })
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(cmp.Compare(seen[b], seen[a]), cmp.Compare(a, b)) })
	list := strings.Join(words[:min(len(words), 5)], ", ")
	if len(words) > 5 {
		list += ", …"
	}
	return []string{fmt.Sprintf("%s %s was not among them (%s)", what, word, list)}
}

// named reports whether finished jobs are called as this one: half of its words are known, or none of
// them said what it trains, so that there is nothing better to go by.
func (k *known) named(f *history.Features) bool {
	if k.Tasks[""] == k.Count && k.Models[""] == k.Count && len(k.Names) == 0 {
		return true
	}
	list := history.NameWords(f.Name)
	have := 0
	for _, w := range list {
		if k.Names[w] > 0 {
			have++
		}
	}
	return have > 0 && 2*have >= len(list)
}

// beyond says which amounts are far outside of what was seen.
func (k *known) beyond(f *history.Features) []string {
	have := amounts(f, Progress{})
	kind := k.Kinds[history.Kind(f)]
	var why []string
	for _, name := range checked {
		v, told := have[name]
		if !told {
			continue
		}
		r, ok := k.All[name]
		margin := math.Log(outside)
		if in, sure := kind.Amounts[name]; sure && kind.Count >= enoughKind {
			low, high := in.Low-math.Log(outsideKind), in.High+math.Log(outsideKind)
			if v < low || v > high {
				r, margin = in, math.Log(outsideKind)
			}
		}
		if ok && (v < r.Low-margin || v > r.High+margin) {
			why = append(why, fmt.Sprintf("%s %s is far from the %s to %s of finished jobs", name, figure(v), figure(r.Low), figure(r.High)))
		}
	}
	return why
}

// figure writes an amount of which the logarithm is given.
func figure(log float64) string { return fmt.Sprintf("%.3g", math.Exp(log)) }

// forgettable are what a job may leave untold, and how to forget it.
var forgettable = []struct {
	name   string
	told   func(*history.Features) bool
	forget func(*history.Features)
}{
	{"params", func(f *history.Features) bool { return f.Params > 0 }, func(f *history.Features) { f.Params = 0 }},
	{"batch", func(f *history.Features) bool { return f.Batch > 0 }, func(f *history.Features) { f.Batch = 0 }},
	{"rate", func(f *history.Features) bool { return f.Rate > 0 }, func(f *history.Features) { f.Rate = 0 }},
	{"amount", func(f *history.Features) bool { return f.Amount > 0 }, func(f *history.Features) { f.Amount = 0 }},
	{"gpus", func(f *history.Features) bool { return f.GPUs > 0 }, func(f *history.Features) { f.GPUs = 0 }},
	{"nodes", func(f *history.Features) bool { return f.Nodes > 0 }, func(f *history.Features) { f.Nodes = 0 }},
	{"gpu", func(f *history.Features) bool { return f.GPU != "" || f.TFLOPS > 0 }, func(f *history.Features) { f.GPU, f.TFLOPS = "", 0 }},
	{"framework", func(f *history.Features) bool { return f.Framework != "" }, func(f *history.Features) { f.Framework = "" }},
	{"task", func(f *history.Features) bool { return f.Task != "" }, func(f *history.Features) { f.Task = "" }},
	{"model", func(f *history.Features) bool { return f.Model != "" }, func(f *history.Features) { f.Model = "" }},
	{"target", func(f *history.Features) bool { return f.Target != 0 }, func(f *history.Features) { f.Target, f.Metric = 0, "" }},
}

// doubts finds out how much answers depend on what nearly all finished jobs told: by how much they move
// if it is forgotten.
func (m *Model) doubts(records []*history.Past) map[string]float64 {
	doubt := map[string]float64{}
	const probed = 100
	for _, part := range forgettable {
		told, sum, n := 0, 0.0, 0
		for i, r := range records {
			if !part.told(&r.Features) {
				continue
			}
			told++
			if i%max(len(records)/probed, 1) != 0 {
				continue
			}
			less := r.Features
			part.forget(&less)
			d := m.parts.say(&less, Progress{}) - m.parts.say(&r.Features, Progress{})
			sum += d * d
			n++
		}
		if n > 0 && told*10 >= len(records)*9 {
			doubt[part.name] = sum / float64(n)
		}
	}
	return doubt
}

// untold returns what a job leaves untold that nearly all finished jobs told, and the variance
// that this adds.
func (k *known) untold(f *history.Features) (names []string, doubt float64) {
	for _, part := range forgettable {
		if d, ok := k.Doubt[part.name]; ok && !part.told(f) {
			names = append(names, part.name)
			doubt += d
		}
	}
	return names, doubt
}
