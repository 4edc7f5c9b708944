package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/job"
)

// falling is a curve of n points that comes to a goal at so much work.
func falling(n int, goalAt float64) curve.Curve {
	c := curve.Curve{Goal: curve.Goal{Value: 10 / (1 + goalAt/100), Set: true}}
	for i := range n {
		x := float64(i+1) * 10
		c.X, c.Y = append(c.X, x), append(c.Y, 10/(1+x/100))
	}

	return c
}

func TestNothingToGoBy(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]Case{
		"nothing":                  {},
		"a time":                   {Elapsed: 10},
		"a curve without a goal":   {Curve: curve.Curve{X: []float64{1, 2}, Y: []float64{2, 1}}},
		"a curve that has its end": {Curve: falling(10, 50)},
	} {
		if a := Ask(&c, nil, nil); a.Known() || a.Left != (job.Band{}) {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestFromTheFirstPointThereIsAnAnswer(t *testing.T) {
	t.Parallel()

	for n := 1; n < 6; n++ {
		a := Ask(&Case{Curve: falling(n, 200)}, nil, nil)
		if !a.Known() || a.Left.Mid <= 0 || a.Class != calibrate.ClassAlone || !a.Guess {
			t.Errorf("%d points: %+v", n, a)
		}
	}
}

func TestAGoalIsNotReachedBeforeTheNextPoint(t *testing.T) {
	t.Parallel()
	c := falling(40, 401)
	a := Ask(&Case{Curve: c}, nil, nil)
	if s := a.Estimates[0]; s.Method != calibrate.MethodCurve || s.Left < 10 {
		t.Errorf("the next point is 10 away; %+v", s)
	}
}

func TestWorkDoneSinceTheLastPointCounts(t *testing.T) {
	t.Parallel()
	c := falling(40, 900)
	at := Ask(&Case{Curve: c}, nil, nil)

	later := Ask(&Case{Curve: c, Done: 450}, nil, nil)
	if d := at.Estimates[0].Left - later.Estimates[0].Left; math.Abs(d-50) > 1e-6 {
		t.Errorf("50 more are done, %g less are left", d)
	}
}

func TestAnswersAreBoundedByTheProgramsEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := falling(rapid.IntRange(1, 60).Draw(t, "points"), rapid.Float64Range(601, 1e5).Draw(t, "goal"))
		x := c.X[len(c.X)-1]
		c.Total = x + rapid.Float64Range(0, 1e5).Draw(t, "rest")
		a := Ask(&Case{Curve: c, Elapsed: rapid.Float64Range(0, 100).Draw(t, "elapsed")}, nil, nil)
		if l := a.Left; l.Low < 0 || l.Low > l.Mid || l.Mid > l.High || l.High > (c.Total-x)*(1+1e-9)+1e-9 ||
			math.IsNaN(a.Never) {
			t.Fatalf("%g are left at most: %+v, never %g", c.Total-x, l, a.Never)
		}
	})
}
