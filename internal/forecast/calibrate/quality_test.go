package calibrate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestQualityByClassAndDay(t *testing.T) {
	t.Parallel()
	r := &Record{}
	held, missed := true, false

	var all []JobScore
	for i := range 60 {
		class, covered := ClassSteps, &held
		if i%3 == 0 {
			class, covered = ClassAlone, &missed
		}

		s := scored(i, class, map[string]float64{MethodCurve: math.Log(2)})
		s.Finished = noon.Add(time.Duration(i) * 12 * time.Hour)

		for k := range s.Marks {
			s.Marks[k].Covered = covered
		}

		all = append(all, s)
	}

	r.Add(all...)

	classes := r.ByClass()
	if len(classes) != 2 || classes[0].Class != ClassSteps || classes[1].Class != ClassAlone {
		t.Fatalf("classes: %+v", classes)
	}

	if q := classes[0]; q.Forecasts != 160 || q.Intervals != 160 || q.Covered != 1 || math.Abs(q.Median-0.5) > 1e-9 {
		t.Errorf("what was left was twice the estimate: %+v", q)
	}

	if q := classes[1]; q.Forecasts != 80 || q.Covered != 0 || q.Intervals != 80 {
		t.Errorf("no interval held: %+v", q)
	}

	days := r.OverTime()
	if len(days) != 31 || !days[0].Start.Equal(noon.Truncate(day)) || days[1].Forecasts != 8 {
		t.Errorf("%d days: %+v", len(days), days)
	}

	all[59].Finished = noon.Add(100 * day) // over more than two months
	r.Add(all[59])

	weeks := r.OverTime()
	for _, w := range weeks {
		if w.Start.Weekday() != time.Monday {
			t.Errorf("a week begins on %s", w.Start.Weekday())
		}
	}

	if len(weeks) < 5 || len(weeks) > 7 {
		t.Errorf("%d weeks", len(weeks))
	}

	if empty := (&Record{}); empty.ByClass() != nil || len(empty.OverTime()) != 0 || empty.Reliability() != nil ||
		len(empty.Worst(10)) != 0 {
		t.Error("a record without jobs says something")
	}
}

// noisy is a record of jobs whose errors have the same distribution, or twice as wide ones from the middle on.
func noisy(n int, drift float64) *Record {
	rng := rand.New(rand.NewPCG(1, 2))
	r := &Record{}

	var all []JobScore
	for i := range n {
		width := 0.2
		if i >= n/2 {
			width *= drift
		}

		s := scored(i, ClassLike, nil)
		for k := range s.Marks {
			s.Marks[k].Residuals = map[string]float64{MethodMatch: width * rng.NormFloat64()}
		}

		all = append(all, s)
	}

	r.Add(all...)

	return r
}

func TestProbabilitiesAreComparedWithFrequencies(t *testing.T) {
	t.Parallel()

	if got := noisy(MinJobs, 1).Reliability(); got != nil {
		t.Errorf("too few jobs before, and yet %+v", got)
	}

	levels := noisy(400, 1).Reliability()
	if len(levels) != 9 || levels[0].Forecasts != 4*(400-MinJobs) {
		t.Fatalf("levels: %+v", levels)
	}

	for _, l := range levels {
		if math.Abs(l.Observed-l.Expected) > 0.05 {
			t.Errorf("exchangeable jobs: %+v", l)
		}
	}

	// Errors become four times as large: what was said before is too narrow, and that shows.
	drifted := noisy(400, 4).Reliability()
	if drifted[0].Observed < 0.15 || drifted[8].Observed > 0.85 {
		t.Errorf("drifted jobs: %+v", drifted)
	}
}

func TestTheWorstForecastsOfTheNewestJobs(t *testing.T) {
	t.Parallel()
	r := recordOf(50, ClassLike, map[string]float64{MethodMatch: 0.01})
	old := scored(0, ClassLike, map[string]float64{MethodMatch: 3}) // long ago
	late := scored(48, ClassLike, map[string]float64{MethodMatch: 0.01})
	late.Marks[1].Residuals = map[string]float64{MethodMatch: math.Log(4)}
	late.Marks[1].Covered = new(bool)
	early := scored(49, ClassLike, map[string]float64{MethodMatch: -math.Log(2)})
	r.Add(old, late, early)

	worst := r.Worst(10)
	if len(worst) != 10 || worst[0].Job != "j0048" || math.Abs(worst[0].Ratio-4) > 0.01 || worst[0].Progress != 0.4 ||
		worst[0].Covered == nil || *worst[0].Covered || worst[0].Class != ClassLike {
		t.Errorf("the worst: %+v", worst[0])
	}

	if worst[1].Job != "j0049" || math.Abs(worst[1].Ratio-0.5) > 0.01 || worst[1].Covered != nil {
		t.Errorf("the second: %+v", worst[1])
	}
}
