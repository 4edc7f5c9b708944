package calibrate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/id"
)

// noon is when the first job ended.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// scored is a finished job of which the methods' logs were the same at every mark.
func scored(n int, class Class, logs map[string]float64) JobScore {
	s := JobScore{Job: id.Job(fmt.Sprintf("j%04d", n)), Finished: noon.Add(time.Duration(n) * time.Minute), Kind: "k"}
	for _, p := range ReplayPoints {
		s.Marks = append(s.Marks, Mark{Progress: p, Class: class, Residuals: logs})
	}

	return s
}

// recordOf is a record of n jobs whose methods were wrong by so much, to either side in turn.
func recordOf(n int, class Class, errors map[string]float64) *Record {
	r := &Record{}
	var all []JobScore
	for i := range n {
		logs := map[string]float64{}
		for m, e := range errors {
			logs[m] = e * float64(1-2*(i%2)) * (0.5 + float64(i)/float64(n))
		}

		all = append(all, scored(i, class, logs))
	}

	r.Add(all...)

	return r
}

// weightsOf returns what the methods that answered count in the middle of a class.
func weightsOf(r *Record, class Class, methods ...string) map[string]float64 {
	said := NoEstimates()
	for _, m := range methods {
		said[MethodIndex(m)] = 0
	}

	w := r.Calibration().expected.weights(classIndex(class), 1, &said)

	got := map[string]float64{}
	for _, m := range methods {
		got[m] = w[MethodIndex(m)]
	}

	return got
}

func TestBeforeThereIsARecordTheOrderIsThatOfResearch(t *testing.T) {
	t.Parallel()
	w := weightsOf(nil, ClassLike, MethodSteps, MethodMatch, MethodCurve, MethodDuration)
	if !(w[MethodSteps] > w[MethodMatch] && w[MethodMatch] > w[MethodCurve] && w[MethodCurve] > w[MethodDuration] &&
		w[MethodDuration] > 0) {
		t.Errorf("weights: %v", w)
	}
}

func TestWeightsFollowTheRecord(t *testing.T) {
	t.Parallel()
	r := recordOf(100, ClassLike, map[string]float64{MethodMatch: 0.9, MethodCurve: 0.05})
	if w := weightsOf(r, ClassLike, MethodMatch, MethodCurve); w[MethodCurve] < 0.9 {
		t.Errorf("the curve was right and match was wrong, and yet: %v", w)
	}

	few := recordOf(2, ClassLike, map[string]float64{MethodMatch: 0.9, MethodCurve: 0.05})
	if w := weightsOf(few, ClassLike, MethodMatch, MethodCurve); w[MethodMatch] < 0.5 {
		t.Errorf("two jobs overturn what was measured on many: %v", w)
	}

	blind := &Record{}
	for i := range 60 {
		s := scored(i, ClassLike, map[string]float64{MethodCurve: 0.3})
		for k := range s.Marks {
			s.Marks[k].NoEnd = []string{MethodMatch}
		}

		blind.Add(s)
	}

	if w := weightsOf(blind, ClassLike, MethodMatch, MethodCurve); w[MethodMatch] > 0.1 {
		t.Errorf("a method that saw no end is trusted: %v", w)
	}
}

func TestAnIntervalIsAGuessBeforeTwentyFinishedJobs(t *testing.T) {
	t.Parallel()
	like := classIndex(ClassLike)
	for n, guess := range map[int]bool{0: true, 19: true, 20: false, 100: false} {
		b := recordOf(n, ClassLike, map[string]float64{MethodMatch: 0.2}).Calibration().bounds(like, "k", 1, difficulty(0))
		if b.Guess != guess {
			t.Errorf("with %d jobs: %+v", n, b)
		}

		if guess && math.Abs(math.Exp(b.High-b.Low)-2.6) > 1e-9 {
			t.Errorf("the guess is %g times as high as low", math.Exp(b.High-b.Low))
		}
	}

	b := recordOf(100, ClassSteps, map[string]float64{MethodSteps: 0.01}).Calibration().bounds(like, "k", 1, difficulty(0))
	if !b.Guess {
		t.Error("jobs with declared steps stand in for jobs without")
	}
}

func TestIntervalsAreAsWideAsErrorsWere(t *testing.T) {
	t.Parallel()

	for _, e := range []float64{0.05, 0.5} {
		b := recordOf(
			200,
			ClassAlone,
			map[string]float64{MethodCurve: e},
		).Calibration().
			bounds(classIndex(ClassAlone), "k", 1, difficulty(0))

		if b.High < e || b.High > 1.5*e || b.Low > -e || b.Low < -1.5*e {
			t.Errorf("errors of about %g give %+v", e, b)
		}
	}

	// Where past jobs are far apart, the interval is wide from the beginning.
	r := recordOf(200, ClassLike, map[string]float64{MethodMatch: 0.1}).Calibration()
	sure, unsure := r.bounds(classIndex(ClassLike), "k", 1, difficulty(0)), r.bounds(classIndex(ClassLike), "k", 1, difficulty(1))

	if math.Abs(unsure.High/sure.High-difficulty(1)/difficulty(0)) > 1e-9 {
		t.Errorf("sure %+v, unsure %+v", sure, unsure)
	}
}

func TestJobsOfItsKindTellMoreThanOthers(t *testing.T) {
	t.Parallel()
	r := recordOf(60, ClassAlone, map[string]float64{MethodCurve: 1})

	var own []JobScore
	for i := range 30 {
		s := scored(1000+i, ClassAlone, map[string]float64{MethodCurve: 0.1 * float64(1-2*(i%2))})
		s.Kind = "steady"
		own = append(own, s)
	}

	r.Add(own...)

	class := classIndex(ClassAlone)
	if steady, other := r.Calibration().
		bounds(class, "steady", 1, 1),
		r.Calibration().
			bounds(class, "new", 1, 1); steady.High*3 > other.High {
		t.Errorf("of the kind %+v, of another %+v", steady, other)
	}
}

func TestIntervalsThatHeldTooOftenAreDrawnIn(t *testing.T) {
	t.Parallel()
	with := func(held bool) Bounds {
		r := &Record{}
		var all []JobScore
		for i := range 100 {
			s := scored(i, ClassAlone, map[string]float64{MethodCurve: float64(i-50) / 50})
			for k := range s.Marks {
				s.Marks[k].Covered = &held
			}

			all = append(all, s)
		}

		r.Add(all...)

		return r.Calibration().bounds(classIndex(ClassAlone), "k", 1, difficulty(0))
	}

	without := recordOf(100, ClassAlone, map[string]float64{MethodCurve: 1}).Calibration()
	if without.tailProbability(classIndex(ClassAlone)) != TailProbability {
		t.Errorf("without intervals that were shown, %g is left out", without.tailProbability(classIndex(ClassAlone)))
	}

	if in, out := with(true), with(false); in.High >= out.High || in.Low <= out.Low {
		t.Errorf("all held: %+v; none did: %+v", in, out)
	}
}

func TestJobsThatHaveHardlyBegunStandApart(t *testing.T) {
	t.Parallel()
	r := recordOf(60, ClassAlone, map[string]float64{MethodCurve: 0.1})
	for i := range 60 {
		s := scored(1000+i, ClassAlone, map[string]float64{MethodCurve: 2 * float64(1-2*(i%2))})
		for k := range s.Marks {
			s.Marks[k].FewPoints = true
		}

		r.Add(s)
	}

	class := classIndex(ClassAlone)
	if later, hardly := r.Calibration().
		bounds(class, "k", 1, 1),
		r.Calibration().
			bounds(class, "k", fewPoints, 1); later.High*4 > hardly.High {
		t.Errorf("later %+v, hardly begun %+v", later, hardly)
	}
}

func TestConformalBounds(t *testing.T) {
	t.Parallel()
	sorted := func(n int) []weightedResidual {
		var all []weightedResidual
		for i := range n {
			all = append(all, weightedResidual{float64(i + 1), 1})
		}

		return all
	}

	for n, want := range map[int][3]float64{1: {1, 1, 1}, 2: {1, 1.5, 2}, 20: {2, 10.5, 19}, 29: {3, 15, 27},
		99: {10, 50, 90}} {
		low, mid, high := conformalQuantiles(sorted(n), TailProbability)
		if got := [3]float64{low, mid, high}; got != want {
			t.Errorf("of 1 to %d: %v, want %v", n, got, want)
		}
	}
}

func TestConformalBoundsHoldForTheNext(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{20, 50, 200} {
		held := 0
		const tries = 4000
		for range tries {
			all := make([]weightedResidual, n)
			for i := range all {
				all[i] = weightedResidual{chance.ExpFloat64(), 1}
			}

			slices.SortFunc(all, func(a, b weightedResidual) int { return int(math.Copysign(1, a.residual-b.residual)) })
			low, _, high := conformalQuantiles(all, TailProbability)
			if next := chance.ExpFloat64(); next >= low && next <= high {
				held++
			}
		}

		if share := float64(held) / tries; share < 0.78 || share > 0.84 {
			t.Errorf("with %d the next fell into the bounds in %g of cases", n, share)
		}
	}
}

func anyScored(t *rapid.T, n int) JobScore {
	s := JobScore{
		Job:  id.Job(fmt.Sprintf("j%d", n)),
		Kind: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "kind"),
		Group: rapid.SampledFrom([]string{"", "x", "y", "z"}).
			Draw(t, "group"),
		Finished: noon.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "at")) * time.Minute),
	}

	for _, p := range ReplayPoints {
		m := Mark{
			Progress:  p,
			Class:     rapid.SampledFrom([]Class{ClassSteps, ClassLike, ClassAlone, ClassBefore}).Draw(t, "class"),
			Residuals: map[string]float64{},
			Spread:    rapid.Float64Range(0, 3).Draw(t, "wide"),
		}

		for _, name := range []string{MethodSteps, MethodMatch, MethodCurve, MethodDuration} {
			switch rapid.IntRange(0, 2).Draw(t, name) {
			case 1:
				m.Residuals[name] = rapid.Float64Range(-5, 5).Draw(t, "log")
			case 2:
				m.NoEnd = append(m.NoEnd, name)
			}
		}

		if rapid.Bool().Draw(t, "told") {
			held := rapid.Bool().Draw(t, "held")
			m.Covered = &held
		}

		s.Marks = append(s.Marks, m)
	}

	return s
}

func TestTheOrderOfJobsDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []JobScore
		for i := range rapid.IntRange(0, 24).Draw(t, "jobs") {
			all = append(all, anyScored(t, i))
		}

		var a, b, part Record
		a.Add(all...)

		for _, s := range rapid.Permutation(all).Draw(t, "order") {
			b.Add(s)
		}

		half := len(all) / 2
		part.Add(all[half:]...)
		before := part.Jobs()
		c := part.With(all[:half]...)

		if part.Jobs() != before {
			t.Fatalf("the record that another was made from has changed")
		}

		text, err := json.Marshal(&a)
		if err != nil {
			t.Fatal(err)
		}

		var read Record
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}

		for name, o := range map[string]*Record{"in another order": &b, "made from another": c, "read back": &read} {
			if diff := cmp.Diff(a.Table(), o.Table()); diff != "" {
				t.Fatalf("%s: %s", name, diff)
			}

			for class := range classes {
				for q := range quarters {
					if x, y := a.Calibration().
						bounds(class, "a", q, 0.3),
						o.Calibration().
							bounds(class, "a", q, 0.3); x != y || x.Low > x.Mid ||
						x.Mid > x.High {
						t.Fatalf("%s: bounds %+v and %+v", name, x, y)
					}
				}
			}

			share, n := a.Coverage()
			if otherShare, m := o.Coverage(); share != otherShare || n != m {
				t.Fatalf("%s: coverage %g of %d and %g of %d", name, share, n, otherShare, m)
			}
		}
	})
}

func TestARecordKeepsTheNewest(t *testing.T) {
	t.Parallel()
	r := recordOf(MaxJobs+50, ClassAlone, map[string]float64{MethodCurve: 0.2})
	if r.Jobs() != MaxJobs || r.jobs[0].Job != "j0050" {
		t.Errorf("%d jobs from %s on", r.Jobs(), r.jobs[0].Job)
	}

	r.Add(JobScore{Job: "empty"}, scored(60, ClassAlone, map[string]float64{MethodCurve: 0.2}))

	if r.Jobs() != MaxJobs {
		t.Errorf("a job that was there and one without marks make %d", r.Jobs())
	}
}

func TestTheTableShowsErrorsAndFailures(t *testing.T) {
	t.Parallel()
	var r Record
	for i := range 10 {
		s := scored(i, ClassAlone, map[string]float64{MethodCurve: -math.Log(1.25)})
		s.Marks[0].NoEnd, s.Marks[0].Residuals = []string{MethodCurve}, map[string]float64{MethodMatch: 0}
		r.Add(s)
	}

	for _, l := range r.Table() {
		switch {
		case l.Method == MethodCurve && l.Quarter == 0:
			if math.Abs(l.Median-0.25) > 1e-9 || l.Failed != 10 || l.Forecasts != 40 {
				t.Errorf("%+v", l)
			}
		case l.Method == MethodMatch && l.Quarter == 0:
			if l.Median != 0 || l.Failed != 0 || l.Forecasts != 10 {
				t.Errorf("%+v", l)
			}
		}
	}

	var none *Record
	if none.Table() != nil || none.Jobs() != 0 {
		t.Error("nothing has a table")
	}
}

// BenchmarkAdd is a job that ends, in a yard with a full record.
func BenchmarkAdd(b *testing.B) {
	r := recordOf(MaxJobs, ClassLike, map[string]float64{MethodMatch: 0.1, MethodCurve: 0.5})
	s := scored(MaxJobs/2, ClassLike, map[string]float64{MethodMatch: 0.1, MethodCurve: 0.5})
	for b.Loop() {
		r.Add(s)
	}
}
