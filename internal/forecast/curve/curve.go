// Package curve estimates how much work is left until the metric of a job reaches its
// goal, by extrapolation of its learning curve. It is one of the estimators of a forecast; package
// calibrate blends it with those that use history.
//
// Work is what the program counts: samples, steps, or seconds if it counts nothing. It does not change when a job gets
// more or other GPUs; time does.
package curve

import "math"

// Curve is one metric over the work done, as far as it has come.
type Curve struct {
	X     []float64 // work done at each point: above 0 and rising
	Y     []float64 // the metric there: finite
	Goal  Goal
	Total float64 // work after which the program says it ends; 0 if it does not say
}

// Goal is the value of the metric at which the job is done. Without one a curve tells
// only how it goes on.
type Goal struct {
	Value  float64
	Rising bool // the metric has to come up to the value, not down to it
	Set    bool
}

// Met reports whether a value is as good as the goal.
func (g Goal) Met(v float64) bool {
	switch {
	case !g.Set:
		return false
	case g.Rising:
		return v >= g.Value
	}

	return v <= g.Value
}

// Estimate is what a method says of a curve.
type Estimate struct {
	End   float64 // work at which the goal is reached; +Inf if the method sees no end
	Never float64 // probability that the goal is not reached, or not by Total
	// Low and High are the method's own 80 % interval of the end; 0 if it has none.
	Low, High float64
}

// Fails reports whether the method predicts no end.
func (e Estimate) Fails() bool { return math.IsInf(e.End, 1) || math.IsNaN(e.End) }

// Method is one way to continue a curve.
type Method struct {
	Name string
	// Estimate is asked only about curves with a goal that no point has met yet and with at least
	// Points points.
	Estimate func(c *Curve) Estimate
	Points   int
}
