package demo

import (
	"fmt"
	"math"

	"trainyard/internal/sim"
)

// course is what a program measures while it trains.
type course struct {
	steps   float64
	metrics []measured // the training loss, then the validation loss
}

// measured is one metric.
type measured struct {
	name   string
	rarely bool // only with every fifth line
	at     func(step float64) float64
}

// courseOf returns the course of a job. It follows from its error curve; noise is the same each time.
func courseOf(j *sim.Job) course {
	if j.Speed == nil {
		return course{steps: j.Duration.Seconds()}
	}

	c := course{steps: j.Speed.Work}
	if len(j.ErrorCurve) == 0 {
		return c
	}

	noise := func(what string, step float64) float64 {
		// The sum of four even ones is nearly a normal one.
		sum := 0.0
		for i := range 4 {
			sum += share(fmt.Sprint(j.Name, what, i, step))
		}

		return (sum - 2) * 1.7
	}

	validation := func(step float64) float64 { return interpolate(j.ErrorCurve, step/c.steps) }
	r, rate := recipeOf(j.Spec), param(j.Spec, "lr")

	c.metrics = []measured{
		{name: "loss", at: func(step float64) float64 {
			return validation(step) * (0.94 - 0.1*step/c.steps) * math.Exp(0.035*noise("loss", step))
		}},
		{name: "val_loss", rarely: true, at: func(step float64) float64 {
			return validation(step) * math.Exp(0.006*noise("val", step))
		}},
		{name: "lr", rarely: true, at: func(step float64) float64 { return rate * r.schedule(step/c.steps) }},
	}

	return c
}

// schedule is the learning rate at a share of the work, as a share of the highest.
func (r *recipe) schedule(done float64) float64 {
	const warmup = 0.03

	switch {
	case done < warmup:
		return done / warmup
	case r.drops && done >= 0.75:
		return 0.01
	case r.drops && done >= 0.5:
		return 0.1
	case r.drops:
		return 1
	}

	return 0.5 * (1 + math.Cos(math.Pi*(done-warmup)/(1-warmup)))
}

// interpolate returns the height of a curve.
func interpolate(curve []sim.Point, x float64) float64 {
	for i := 1; i < len(curve); i++ {
		from, to := curve[i-1], curve[i]
		if x <= to.X {
			return from.Y + (to.Y-from.Y)*(x-from.X)/(to.X-from.X)
		}
	}

	return curve[len(curve)-1].Y
}
