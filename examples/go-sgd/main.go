// Command go-sgd trains a logistic regression by stochastic gradient descent.
//
// It needs nothing but Go, so it shows that a job is any program: the yard does
// not care what language it is written in. The learning rate comes from -lr; the
// three jobs of job.yaml differ in nothing else.
package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
)

const inputs = 8

// sample is one labelled point.
type sample struct {
	x [inputs]float64
	y float64 // 0 or 1
}

// draw makes n points on two sides of a plane, some of them on the wrong side.
func draw(rng *rand.Rand, n int) []sample {
	samples := make([]sample, n)
	for i := range samples {
		score := 0.5 * rng.NormFloat64()
		for k := range inputs {
			samples[i].x[k] = rng.NormFloat64()
			score += samples[i].x[k] * float64(k-3)
		}

		if score > 0 {
			samples[i].y = 1
		}
	}

	return samples
}

// model is the plane that is learned.
type model struct {
	w    [inputs]float64
	bias float64
}

// probability returns how likely the model takes the point's label to be 1.
func (m *model) probability(x *[inputs]float64) float64 {
	score := m.bias
	for k, v := range x {
		score += m.w[k] * v
	}

	return 1 / (1 + math.Exp(-score))
}

// learn moves the model a step down the gradient of one sample.
func (m *model) learn(s *sample, rate float64) {
	step := rate * (s.y - m.probability(&s.x))
	for k, v := range s.x {
		m.w[k] += step * v
	}

	m.bias += step
}

// judge returns the mean loss and the share of points on the right side.
func (m *model) judge(samples []sample) (loss, accuracy float64) {
	right := 0
	for i := range samples {
		s := &samples[i]
		p := min(max(m.probability(&s.x), 1e-12), 1-1e-12)
		loss -= s.y*math.Log(p) + (1-s.y)*math.Log(1-p)

		if (p > 0.5) == (s.y == 1) {
			right++
		}
	}

	n := float64(len(samples))

	return loss / n, float64(right) / n
}

func main() {
	rate := flag.Float64("lr", 0.01, "learning rate")
	epochs := flag.Int("epochs", 20, "passes over the data")
	flag.Parse()

	rng := rand.New(rand.NewPCG(1, 2)) // a fixed seed, so that every run gives the same numbers
	train, valid := draw(rng, 20000), draw(rng, 4000)

	var m model
	for epoch := 1; epoch <= *epochs; epoch++ {
		for _, i := range rng.Perm(len(train)) {
			m.learn(&train[i], *rate)
		}

		loss, _ := m.judge(train)

		valLoss, valAcc := m.judge(valid)
		if _, err := fmt.Fprintf(os.Stdout, "step=%d lr=%g loss=%.4f val_loss=%.4f val_acc=%.3f\n",
			epoch*len(train), *rate, loss, valLoss, valAcc); err != nil {
			os.Exit(1)
		}
	}
}
