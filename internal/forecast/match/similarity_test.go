package match

import (
	"testing"

	"trainyard/internal/forecast/history"
)

func TestKinshipIsGreatestOfTheSameKind(t *testing.T) {
	t.Parallel()
	me := history.Features{
		Name:   "gpt-7",
		Owner:  "ada",
		Task:   "language",
		Model:  "gpt2",
		Metric: "val_loss",
		Target: 3.28,
		Batch:  64,
	}

	with := func(change func(*history.Features)) history.Features {
		f := me
		change(&f)
		return f
	}

	// From the most alike to the least.
	order := []history.Features{
		me,
		with(func(f *history.Features) { f.Owner = "bob" }),
		with(func(f *history.Features) { f.Batch = 128 }),
		with(func(f *history.Features) { f.Target = 2.9 }),
		with(func(f *history.Features) { f.Model, f.Name, f.Target = "llama", "run", 2.9 }),
		with(func(f *history.Features) { f.Metric = "accuracy" }),
	}

	mine := traitsOf(&me)

	last := 2.0
	for i := range order {
		theirs := traitsOf(&order[i])
		k := similarity(&mine, &theirs)
		if k > 1 || k >= last {
			t.Errorf("%+v is %.3f alike, the one before %.3f", order[i], k, last)
		}

		last = k
	}

	if last != 0 {
		t.Errorf("with another metric it is %.3f alike", last)
	}
}
