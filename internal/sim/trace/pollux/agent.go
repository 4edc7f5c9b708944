package pollux

import (
	"math"
	"slices"

	"trainyard/internal/sim"
)

// Agent is the program of a job that chooses its own batch size, as the agent of Pollux does: by
// what it has measured itself, on the GPUs that it has had. It learns how long its GPUs compute
// for a batch, how long they wait for each other, and the noise of its gradients. What it has
// not measured it takes to be free of waiting, and tries it.
type Agent struct {
	p     *Profile
	fixed float64 // batch size if it does not choose, 0 otherwise

	on     sim.GPUs
	plan   split // of its batch now
	epoch  int
	begun  bool // it has trained since on was set
	noise  noise
	passes map[string][]pass // measured computing by model of GPU
	waits  map[sim.GPUs]float64
}

// split is a batch as its GPUs do it: each so many passes of so many samples.
type split struct {
	each, passes float64
}

// noise is the square and the variance of the gradient, as last measured; both 0 before that.
type noise struct{ sqr, variance float64 }

// pass is how long one GPU computes for so many samples.
type pass struct{ samples, seconds float64 }

// NewAgent returns the program of a job. With a batch it does not choose another.
func NewAgent(p *Profile, batch int) *Agent {
	return &Agent{p: p, fixed: float64(batch), passes: map[string][]pass{}, waits: map[sim.GPUs]float64{}}
}

// Step implements sim.Program: it measures what it has done since the last step, chooses its batch
// for the present GPUs and trains on.
func (a *Agent) Step(on sim.GPUs, done float64) (rate, until float64) {
	k := a.p.kind(on.Model)
	if k == nil {
		return 0, math.Inf(1)
	}

	if on == a.on && a.begun {
		a.measure(k)
	}

	a.on, a.begun = on, true
	a.epoch = a.p.epochAt(done)
	a.plan = a.choose(k)

	step, wait := k.time(on, a.plan.each)
	batch := float64(on.Count) * a.plan.each * a.plan.passes
	seconds := step + (a.plan.passes-1)*(step-wait)

	return a.p.gain(batch, a.epoch) / (seconds * a.p.slow), a.p.Until(a.epoch + 1)
}

// measure takes note of what the present GPUs did with the present batch.
func (a *Agent) measure(k *stepTimes) {
	step, wait := k.time(a.on, a.plan.each)
	a.waits[a.on] = wait

	list := a.passes[a.on.Model]
	at := slices.IndexFunc(list, func(m pass) bool { return m.samples == a.plan.each })
	if at < 0 {
		list = append(list, pass{samples: a.plan.each})
		at = len(list) - 1
	}

	list[at].seconds = step - wait
	a.passes[a.on.Model] = list

	batch := float64(a.on.Count) * a.plan.each * a.plan.passes
	a.noise.sqr, a.noise.variance = a.p.gradient(batch, a.epoch)
}

// choose returns the batch with which the program expects to come on fastest. Before it has
// measured anything it uses the base batch, or the smallest that its GPUs can do.
func (a *Agent) choose(k *stepTimes) split {
	low := max(a.p.base(), k.minLocal*float64(a.on.Count))
	if a.fixed > 0 {
		return a.p.split(k, a.on, a.fixed)
	}

	best := a.p.split(k, a.on, min(low, a.p.most()))
	if a.noise == (noise{}) {
		return best
	}

	most := 0.0
	for i := range batches {
		batch := low * math.Pow(a.p.most()/low, float64(i)/(batches-1))
		if low > a.p.most() {
			break
		}

		s := a.p.split(k, a.on, batch)
		if s.each < k.minLocal {
			continue
		}

		if g := a.expect(s); g > most {
			best, most = s, g
		}
	}

	return best
}

// expect is how fast the program expects to come on with a batch.
func (a *Agent) expect(s split) float64 {
	compute := a.computing(s.each)
	scale := float64(a.on.Count) * s.each * s.passes / a.p.base()
	gain := (a.noise.variance + a.noise.sqr) / (a.noise.variance/scale + a.noise.sqr)

	return gain / (compute*s.passes + a.waiting())
}

// computing is how long a GPU is expected to compute for so many samples: a line through what was
// measured on this model, or else on another. With one measurement half of it is taken to be
// independent of the number of samples.
func (a *Agent) computing(samples float64) float64 {
	list := a.passes[a.on.Model]
	if len(list) == 0 {
		for _, k := range a.p.kinds {
			if list = a.passes[k.kind]; len(list) > 0 {
				break
			}
		}
	}

	var n, x, y, xx, xy float64
	for _, m := range list {
		// By relative errors: long passes must not decide alone.
		w := 1 / (m.seconds * m.seconds)
		n, x, y = n+w, x+w*m.samples, y+w*m.seconds
		xx, xy = xx+w*m.samples*m.samples, xy+w*m.samples*m.seconds
	}

	if len(list) == 1 {
		return list[0].seconds/2 + list[0].seconds/2*samples/list[0].samples
	}

	slope := (n*xy - x*y) / (n*xx - x*x)
	slope = min(max(slope, 0), xy/xx) // neither part is negative
	fixed := max((y-slope*x)/n, 0)

	return fixed + slope*samples
}

// waiting is how long its GPUs are expected to wait for each other: as measured on this
// allocation, or else the longest that was measured on a smaller one of its kind.
func (a *Agent) waiting() float64 {
	if w, ok := a.waits[a.on]; ok {
		return w
	}

	longest := 0.0
	for on, w := range a.waits {
		if on.Model == a.on.Model && on.Count <= a.on.Count && on.Nodes <= a.on.Nodes {
			longest = max(longest, w)
		}
	}

	return longest
}
