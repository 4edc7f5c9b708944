package forecast

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

// scored is a finished job of which the methods' logs were the same at every mark.
func scored(n int, class Class, logs map[string]float64) Scored {
	s := Scored{Job: id.Job(fmt.Sprintf("j%04d", n)), Finished: noon.Add(time.Duration(n) * time.Minute), Kind: "k"}
	for _, p := range Parts {
		s.Marks = append(s.Marks, Mark{Part: p, Class: class, Logs: logs})
	}
	return s
}

// recordOf is a record of n jobs whose methods were wrong by so much, to either side in turn.
func recordOf(n int, class Class, errors map[string]float64) *Record {
	r := &Record{}
	var all []Scored
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
	said := noLogs()
	for _, m := range methods {
		said[methodAt(m)] = 0
	}
	w := r.rules().beliefs.weights(classAt(class), 1, &said)
	got := map[string]float64{}
	for _, m := range methods {
		got[m] = w[methodAt(m)]
	}
	return got
}

func TestBeforeThereIsARecordTheOrderIsThatOfResearch(t *testing.T) {
	t.Parallel()
	w := weightsOf(nil, ClassLike, MethodSteps, MethodMatch, MethodCurve, MethodDuration)
	if !(w[MethodSteps] > w[MethodMatch] && w[MethodMatch] > w[MethodCurve] && w[MethodCurve] > w[MethodDuration] && w[MethodDuration] > 0) {
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
			s.Marks[k].Blind = []string{MethodMatch}
		}
		blind.Add(s)
	}
	if w := weightsOf(blind, ClassLike, MethodMatch, MethodCurve); w[MethodMatch] > 0.1 {
		t.Errorf("a method that saw no end is trusted: %v", w)
	}
}

func TestAnIntervalIsAGuessBeforeTwentyFinishedJobs(t *testing.T) {
	t.Parallel()
	like := classAt(ClassLike)
	for n, guess := range map[int]bool{0: true, 19: true, 20: false, 100: false} {
		b := recordOf(n, ClassLike, map[string]float64{MethodMatch: 0.2}).rules().bounds(like, "k", 1, doubt(0))
		if b.guess != guess {
			t.Errorf("with %d jobs: %+v", n, b)
		}
		if guess && math.Abs(math.Exp(b.high-b.low)-2.6) > 1e-9 {
			t.Errorf("the guess is %g times as high as low", math.Exp(b.high-b.low))
		}
	}
	b := recordOf(100, ClassSteps, map[string]float64{MethodSteps: 0.01}).rules().bounds(like, "k", 1, doubt(0))
	if !b.guess {
		t.Error("jobs with declared steps stand in for jobs without")
	}
}

func TestIntervalsAreAsWideAsErrorsWere(t *testing.T) {
	t.Parallel()
	for _, e := range []float64{0.05, 0.5} {
		b := recordOf(200, ClassAlone, map[string]float64{MethodCurve: e}).rules().bounds(classAt(ClassAlone), "k", 1, doubt(0))
		if b.high < e || b.high > 1.5*e || b.low > -e || b.low < -1.5*e {
			t.Errorf("errors of about %g give %+v", e, b)
		}
	}
	// Where past jobs are far apart, the interval is wide from the beginning.
	r := recordOf(200, ClassLike, map[string]float64{MethodMatch: 0.1}).rules()
	sure, unsure := r.bounds(classAt(ClassLike), "k", 1, doubt(0)), r.bounds(classAt(ClassLike), "k", 1, doubt(1))
	if math.Abs(unsure.high/sure.high-doubt(1)/doubt(0)) > 1e-9 {
		t.Errorf("sure %+v, unsure %+v", sure, unsure)
	}
}

func TestJobsOfItsKindTellMoreThanOthers(t *testing.T) {
	t.Parallel()
	r := recordOf(60, ClassAlone, map[string]float64{MethodCurve: 1})
	var own []Scored
	for i := range 30 {
		s := scored(1000+i, ClassAlone, map[string]float64{MethodCurve: 0.1 * float64(1-2*(i%2))})
		s.Kind = "steady"
		own = append(own, s)
	}
	r.Add(own...)
	class := classAt(ClassAlone)
	if steady, other := r.rules().bounds(class, "steady", 1, 1), r.rules().bounds(class, "new", 1, 1); steady.high*3 > other.high {
		t.Errorf("of the kind %+v, of another %+v", steady, other)
	}
}

func TestIntervalsThatHeldTooOftenAreDrawnIn(t *testing.T) {
	t.Parallel()
	with := func(held bool) bounds {
		r := &Record{}
		var all []Scored
		for i := range 100 {
			s := scored(i, ClassAlone, map[string]float64{MethodCurve: float64(i-50) / 50})
			for k := range s.Marks {
				s.Marks[k].Held = &held
			}
			all = append(all, s)
		}
		r.Add(all...)
		return r.rules().bounds(classAt(ClassAlone), "k", 1, doubt(0))
	}
	without := recordOf(100, ClassAlone, map[string]float64{MethodCurve: 1}).rules()
	if without.tail(classAt(ClassAlone)) != tail {
		t.Errorf("without intervals that were shown, %g is left out", without.tail(classAt(ClassAlone)))
	}
	if in, out := with(true), with(false); in.high >= out.high || in.low <= out.low {
		t.Errorf("all held: %+v; none did: %+v", in, out)
	}
}

func TestJobsThatHaveHardlyBegunStandApart(t *testing.T) {
	t.Parallel()
	r := recordOf(60, ClassAlone, map[string]float64{MethodCurve: 0.1})
	for i := range 60 {
		s := scored(1000+i, ClassAlone, map[string]float64{MethodCurve: 2 * float64(1-2*(i%2))})
		for k := range s.Marks {
			s.Marks[k].Few = true
		}
		r.Add(s)
	}
	class := classAt(ClassAlone)
	if later, hardly := r.rules().bounds(class, "k", 1, 1), r.rules().bounds(class, "k", begun, 1); later.high*4 > hardly.high {
		t.Errorf("later %+v, hardly begun %+v", later, hardly)
	}
}

func TestConformalBounds(t *testing.T) {
	t.Parallel()
	sorted := func(n int) []weighed {
		var all []weighed
		for i := range n {
			all = append(all, weighed{float64(i + 1), 1})
		}
		return all
	}
	for n, want := range map[int][3]float64{1: {1, 1, 1}, 2: {1, 1.5, 2}, 20: {2, 10.5, 19}, 29: {3, 15, 27}, 99: {10, 50, 90}} {
		low, mid, high := conformal(sorted(n), tail)
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
			all := make([]weighed, n)
			for i := range all {
				all[i] = weighed{chance.ExpFloat64(), 1}
			}
			slices.SortFunc(all, func(a, b weighed) int { return int(math.Copysign(1, a.err-b.err)) })
			low, _, high := conformal(all, tail)
			if next := chance.ExpFloat64(); next >= low && next <= high {
				held++
			}
		}
		if share := float64(held) / tries; share < 0.78 || share > 0.84 {
			t.Errorf("with %d the next fell into the bounds in %g of cases", n, share)
		}
	}
}

func anyScored(t *rapid.T, n int) Scored {
	s := Scored{Job: id.Job(fmt.Sprintf("j%d", n)), Kind: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "kind"),
		Group: rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "group"), Finished: noon.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "at")) * time.Minute)}
	for _, p := range Parts {
		m := Mark{Part: p, Class: rapid.SampledFrom([]Class{ClassSteps, ClassLike, ClassAlone, ClassBefore}).Draw(t, "class"), Logs: map[string]float64{}, Wide: rapid.Float64Range(0, 3).Draw(t, "wide")}
		for _, name := range []string{MethodSteps, MethodMatch, MethodCurve, MethodDuration} {
			switch rapid.IntRange(0, 2).Draw(t, name) {
			case 1:
				m.Logs[name] = rapid.Float64Range(-5, 5).Draw(t, "log")
			case 2:
				m.Blind = append(m.Blind, name)
			}
		}
		if rapid.Bool().Draw(t, "told") {
			held := rapid.Bool().Draw(t, "held")
			m.Held = &held
		}
		s.Marks = append(s.Marks, m)
	}
	return s
}

func TestTheOrderOfJobsDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []Scored
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
					if x, y := a.rules().bounds(class, "a", q, 0.3), o.rules().bounds(class, "a", q, 0.3); x != y || x.low > x.mid || x.mid > x.high {
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
	r.Add(Scored{Job: "empty"}, scored(60, ClassAlone, map[string]float64{MethodCurve: 0.2}))
	if r.Jobs() != MaxJobs {
		t.Errorf("a job that was there and one without marks make %d", r.Jobs())
	}
}

func TestTheTableShowsErrorsAndFailures(t *testing.T) {
	t.Parallel()
	var r Record
	for i := range 10 {
		s := scored(i, ClassAlone, map[string]float64{MethodCurve: -math.Log(1.25)})
		s.Marks[0].Blind, s.Marks[0].Logs = []string{MethodCurve}, map[string]float64{MethodMatch: 0}
		r.Add(s)
	}
	for _, l := range r.Table() {
		switch {
		case l.Method == MethodCurve && l.Quarter == 0:
			if math.Abs(l.Median-0.25) > 1e-9 || l.Failed != 10 || l.Forecast != 40 {
				t.Errorf("%+v", l)
			}
		case l.Method == MethodMatch && l.Quarter == 0:
			if l.Median != 0 || l.Failed != 0 || l.Forecast != 10 {
				t.Errorf("%+v", l)
			}
		}
	}
	var none *Record
	if none.Table() != nil || none.Jobs() != 0 {
		t.Error("nothing has a table")
	}
}
