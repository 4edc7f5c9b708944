package queue_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/id"
	"trainyard/internal/queue"
)

func kin(u id.User, gpus int) queue.Kin { return queue.Kin{User: u, GPUs: gpus} }

// mean returns how long jobs like one took, and which those are.
func mean(p *queue.Past, k queue.Kin) (time.Duration, string) {
	got, _ := p.Estimate(k)
	return got.Mean, got.Basis
}

func TestPastSpeaksForTheNarrowestKinOfWhichItKnowsEnough(t *testing.T) {
	t.Parallel()
	var p queue.Past
	if mean, of := mean(&p, kin("ann", 1)); mean != 0 || of != "" {
		t.Errorf("an empty past expects %s of %q", mean, of)
	}

	for i := range 30 {
		p.Add(kin("bob", 1), time.Duration(i+1)*time.Minute)
	}

	if mean, of := mean(&p, kin("ann", 1)); mean != 15*time.Minute+30*time.Second || of != "30 past jobs with 1 GPU" {
		t.Errorf("ann's first job is expected to run %s by %q, want 15m30s by bob's 30", mean, of)
	}

	for range 20 {
		p.Add(kin("ann", 1), time.Hour)
	}

	if mean, of := mean(&p, kin("ann", 1)); mean != time.Hour || of != "20 past jobs of ann with 1 GPU" {
		t.Errorf("ann's jobs are expected to run %s by %q, want an hour by her own 20", mean, of)
	}

	if mean, _ := mean(&p, kin("ann", 8)); mean == 0 {
		t.Error("nothing is expected of a job of another size, though 50 jobs are known")
	}

	if got, _ := p.Estimate(kin("bob", 1)); got.Low != 4*time.Minute || got.High != 28*time.Minute {
		t.Errorf("four out of five end between %s and %s, want 4m and 28m", got.Low, got.High)
	}
}

func TestPastExpectsOfAnOldJobThatItIsOneOfTheLongOnes(t *testing.T) {
	t.Parallel()
	var p queue.Past
	for i := range 100 {
		p.Add(kin("ann", 1), time.Duration(i+1)*time.Minute)
	}

	if left := p.RemainingTime(kin("ann", 1), 0); left != 51*time.Minute {
		t.Errorf("a new job has %s left, want the median, 51m", left)
	}

	if left := p.RemainingTime(kin("ann", 1), 80*time.Minute); left != 11*time.Minute {
		t.Errorf("a job of 80m has %s left, want 11m: half of the 20 longer ones end by then", left)
	}

	if left := p.RemainingTime(kin("ann", 1), 200*time.Minute); left != 0 {
		t.Errorf("a job older than all has %s left, want 0 for not known", left)
	}
}

func TestPastForgetsTheOldest(t *testing.T) {
	t.Parallel()
	var p queue.Past
	for range 2000 {
		p.Add(kin("ann", 1), time.Hour)
	}

	for range 2000 {
		p.Add(kin("ann", 1), time.Minute)
	}

	if mean, of := mean(&p, kin("ann", 1)); mean != time.Minute || of != "2,000 past jobs of ann with 1 GPU" {
		t.Errorf("expects %s by %q, want a minute by the newest 2000", mean, of)
	}
}

// TestPastComparesJobsByWhatTheyRan: runs of the same program tell more than other jobs of the same size.
func TestPastComparesJobsByWhatTheyRan(t *testing.T) {
	t.Parallel()
	var p queue.Past
	train := queue.Kin{User: "ada", Program: queue.Program{Key: "train", Label: "train.py"}, GPUs: 2}
	other := queue.Kin{User: "ada", Program: queue.Program{Key: "eval", Label: "eval.py"}, GPUs: 2}

	for range 40 {
		p.Add(other, time.Minute)
	}

	for range 4 {
		p.Add(train, 3*time.Hour)
	}

	if _, of := mean(&p, train); of != "44 past jobs of ada with 2 GPUs" {
		t.Errorf("4 runs of train.py are too few: the estimate is by %q", of)
	}

	p.Add(train, 3*time.Hour)

	if mean, of := mean(&p, train); mean != 3*time.Hour || of != "5 past runs of train.py" {
		t.Errorf("train.py is expected to run %s by %q, want 3h by its 5 past runs", mean, of)
	}

	if left := p.RemainingTime(train, 2*time.Hour); left != time.Hour {
		t.Errorf("a run of 2h has %s left, want 1h as the other runs of train.py", left)
	}
}

// TestPastIsTheSameWhenLoaded: what was added and not forgotten is all of a past, whatever is added later, and neither
// adding nor loading changes a clone.
func TestPastIsTheSameWhenLoaded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var p queue.Past
		stored := map[uint64]queue.PastRun{}
		clone, cloned := p.Clone(), ""

		text := func(p *queue.Past) string {
			b, err := p.MarshalJSON()
			if err != nil {
				rt.Fatal(err)
			}

			return string(b)
		}

		for i, n := range rapid.SliceOfN(rapid.IntRange(1, 2500), 1, 3).Draw(rt, "runs") {
			clone = p.Clone()
			cloned = text(clone)

			k := queue.Kin{
				User: id.User(rapid.SampledFrom([]string{"ann", "bob"}).Draw(rt, "user")), GPUs: 1,
				Program: queue.Program{Key: rapid.SampledFrom([]string{"", "train", "eval"}).Draw(rt, "program")},
			}

			for r := range n {
				added, forgotten := p.Add(k, time.Duration(r%97+i+1)*time.Minute)
				stored[added.Number] = added

				for _, number := range forgotten {
					delete(stored, number)
				}
			}
		}

		loaded := &queue.Past{}
		if forgotten := loaded.Load(slices.Collect(maps.Values(stored))); len(forgotten) > 0 {
			rt.Errorf("%v were stored and are forgotten at the load", forgotten)
		}

		if diff := cmp.Diff(text(&p), text(loaded)); diff != "" {
			rt.Errorf("loaded (-before +after):\n%s", diff)
		}

		if got := text(clone); got != cloned {
			rt.Error("a clone has changed")
		}

		more := queue.Kin{User: "ann", GPUs: 1}
		before, _ := p.Add(more, time.Hour)

		after, _ := loaded.Add(more, time.Hour)
		if before != after {
			rt.Errorf("the next run is stored as %+v, and after loading as %+v", before, after)
		}
	})
}

// TestPastRemembersTheNewestRuns: what leaves and what comes in changes the order of the others nowhere.
func TestPastRemembersTheNewestRuns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p queue.Past
		var all []time.Duration

		step := rapid.Int64Range(1, 997).Draw(t, "step")
		for i := range int64(queue.MaxRuns) + rapid.Int64Range(0, 300).Draw(t, "more") {
			ran := time.Duration(1+i*step%(1+step/2+i%17)) * time.Second
			p.Add(kin("ann", 1), ran)

			all = append(all, ran)
		}

		newest := slices.Sorted(slices.Values(all[len(all)-queue.MaxRuns:]))
		sum := time.Duration(0)
		for _, ran := range newest {
			sum += ran
		}

		want := queue.Estimate{
			Mean: sum / queue.MaxRuns, Low: newest[queue.MaxRuns/10], High: newest[queue.MaxRuns*9/10],
		}
		got, _ := p.Estimate(kin("ann", 1))

		if got.Mean != want.Mean || got.Low != want.Low || got.High != want.High {
			t.Fatalf("estimated %+v, want %+v", got, want)
		}

		for _, at := range []int{0, queue.MaxRuns / 3, queue.MaxRuns - 10} {
			age := newest[at]
			from, _ := slices.BinarySearch(newest, age+1)

			if left := len(newest) - from; left >= 5 {
				if want, got := max(newest[from+left/2]-age, time.Second), p.RemainingTime(kin("ann", 1), age); got != want {
					t.Fatalf("after %s it takes %s more, want %s", age, got, want)
				}
			}
		}
	})
}
